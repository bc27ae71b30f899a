//go:build linux

package local_test

import (
	"net"
	"os"
	"os/exec"
	"testing"
)

// The published Python client, openshell 0.1.5, works with the gateway. It needs
// an interpreter that has it: PLIMSOLL_TEST_PYTHON.
func TestPythonClient(t *testing.T) {
	python := os.Getenv("PLIMSOLL_TEST_PYTHON")
	if python == "" {
		t.Skip("PLIMSOLL_TEST_PYTHON is not set")
	}
	c := newClient(t, config(t))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- c.gate.Serve(listener) }()
	out, err := exec.CommandContext(t.Context(), python, "testdata/client.py", listener.Addr().String()).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%v\n%s", err, out)
	}
}
