package attest

const (
	// Windows guards files by access lists, which the mode bits do not show.
	hasModes           = false
	openWithoutWaiting = 0
)

func syncDir(string) error { return nil }
