package record_test

import (
	"fmt"

	"github.com/plimsoll-attest/plimsoll/record"
)

// A caller can compute the digest of a call before it is sent. The trace ID is
// no part of it.
func Example() {
	request := &record.Request{
		Protocol:   2,
		TraceID:    "call-1",
		JavaScript: &record.JavaScriptRun{Code: "console.log(1+1)"},
	}
	fmt.Println(request.Kind())
	fmt.Println(request.Digest())

	b := record.AppendRequest(nil, request)
	again, err := record.ParseRequest(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.TraceID, len(b))
	// Output:
	// javascript
	// dcaa1f037b3585549af24028c3bfdd05f5be41cbc79bbb74ada78f3cfccdfbf3
	// call-1 30
}

func ExampleRecord_Digest() {
	r := &record.Record{Version: 2, Provider: "openshell", Isolation: record.TierContainer}
	digest, err := r.Digest()
	if err != nil {
		fmt.Println(err)
		return
	}
	r.RecordSHA256 = digest
	fmt.Println(r.CheckFields(), record.MeetsFloor(r.Isolation, record.TierKernel))

	r.Instance = "k8s-pod-uid:0a1b"
	fmt.Println(r.CheckFields())
	// Output:
	// <nil> false
	// record fields do not fit the version: version 2 has no instance
}
