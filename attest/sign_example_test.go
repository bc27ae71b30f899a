package attest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plimsoll-attest/plimsoll/attest"
	"github.com/plimsoll-attest/plimsoll/envelope"
	"github.com/plimsoll-attest/plimsoll/internal/bundletest"
	"github.com/plimsoll-attest/plimsoll/verify"
)

// A key is made, a run log signed, and the bundle verified.
func Example() {
	dir, err := os.MkdirTemp("", "plimsoll")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	key, pub := filepath.Join(dir, "harness.key"), filepath.Join(dir, "harness.pub")
	public, err := attest.CreateKey(key, pub, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	signer, err := attest.OpenSigner(key, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	session := bundletest.NewSession("example")
	log := bundletest.RunLog([]bundletest.Entry{
		session.Add(bundletest.JavaScript("call-1", "console.log(1+1)", "2\n")).Entry(),
		session.Close(),
	})
	bundle := filepath.Join(dir, "bundle.jsonl")
	res, err := attest.Sign(context.Background(), bytes.NewReader(log), attest.Options{
		Bundle: bundle,
		Signer: signer,
		Progress: func(r attest.Recorded) {
			if r.Call != nil {
				fmt.Printf("%s is on line %d\n", r.Call.Request.TraceID, r.Line)
			}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("signed:", res.Calls, "calls,", res.Sessions, "sessions")

	text, err := os.ReadFile(bundle)
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := verify.Bundle(context.Background(), bytes.NewReader(text), verify.Options{Keys: []*envelope.PublicKey{public}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("verified:", report.Lines, "lines")
	// Output:
	// call-1 is on line 1
	// signed: 1 calls, 1 sessions
	// verified: 3 lines
}
