package runlog_test

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/plimsoll-attest/plimsoll/runlog"
)

func Example() {
	var log strings.Builder
	w := runlog.NewWriter(io.MultiWriter(&log, os.Stdout))
	w.Unanswered([]byte("request"), []byte("a run record"))
	w.Close([]byte("a session close"))
	w.End()

	r := runlog.NewReader(strings.NewReader(log.String()))
	for {
		line, err := r.Next()
		if err != nil {
			fmt.Println(err) // io.EOF, after the end only
			return
		}
		if line.End == nil {
			fmt.Printf("%q %q\n", line.Request, line.Statement)
		}
	}
	// Output:
	// {"request":"cmVxdWVzdA==","statement":"YSBydW4gcmVjb3Jk"}
	// {"statement":"YSBzZXNzaW9uIGNsb3Nl"}
	// {"end":{"calls":1,"refused":0,"sessions":1}}
	// "request" "a run record"
	// "" "a session close"
	// EOF
}
