package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A Build is what a program knows of itself. It begins the answer of every
// version command.
type Build struct {
	Schema   string `json:"schema"`
	Program  string `json:"program"`
	Version  string `json:"version"` // of the module; "(devel)" outside a release
	Commit   string `json:"commit"`  // empty when the build does not know
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// NewBuild returns what this program knows of itself.
func NewBuild(program string) Build {
	b := Build{
		Schema: "plimsoll.version/v1", Program: program, Version: "(unknown)",
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String is for people, in three lines.
func (b *Build) String() string {
	commit := b.Commit
	switch {
	case commit == "":
		commit = "unknown"
	case b.Modified:
		commit += ", modified"
	}
	return fmt.Sprintf("%s %s\ncommit: %s\ngo: %s %s\n", b.Program, b.Version, commit, b.Go, b.Platform)
}
