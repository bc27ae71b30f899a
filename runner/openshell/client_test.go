package openshell_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-attest/plimsoll/internal/gatewaytest"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

func fault(code connect.Code) error { return connect.NewError(code, errors.New("as told")) }

func create(t *testing.T, c openshell.Gateway, name string) {
	t.Helper()
	if _, err := c.Create(t.Context(), openshell.Spec{Name: name, Policy: openshell.Policy{Version: 1}}); err != nil {
		t.Fatal(err)
	}
}

func TestVersion(t *testing.T) {
	for version, want := range map[string]error{
		"0.1.0":             nil,
		"0.1.5+plimsoll":    nil,
		"0.1.10-dev.3+gabc": nil,
		"0.0.112-dev.7+gab": openshell.ErrUnsupported,
		"0.2.0":             openshell.ErrUnsupported,
		"1.0.0":             openshell.ErrUnsupported,
		"":                  openshell.ErrProtocol,
		"0.1":               openshell.ErrProtocol,
		"v0.1.0":            openshell.ErrProtocol,
		"0.01.0":            openshell.ErrProtocol,
		"0.1.0 ":            openshell.ErrProtocol,
		"0.1.0\n":           openshell.ErrProtocol,
	} {
		g := (&gatewaytest.Gateway{Version: version}).Start(t)
		if version == "" {
			g.Version = ""
		}
		hc, err := openshell.HTTPClient(g.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openshell.Open(t.Context(), g.URL, hc); !errors.Is(err, want) {
			t.Errorf("%q: have %v, want %v", version, err, want)
		}
		hc.CloseIdleConnections()
	}
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"http://127.0.0.1:17670":    true,
		"http://[::1]:17670/":       true,
		"http://localhost:1":        true,
		"https://gateway.example:1": true,
		"http://gateway.example:1":  false,
		"http://10.0.0.1:1":         false,
		"http://127.0.0.1.evil:1":   false,
		"https://user@host:1":       false,
		"https://host:1/path":       false,
		"https://host:1?q":          false,
		"unix:///run/gateway":       false,
		"127.0.0.1:1":               false,
	} {
		if _, err := openshell.HTTPClient(address, nil); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestCodes(t *testing.T) {
	for code, want := range map[connect.Code]error{
		connect.CodeNotFound:           openshell.ErrNotFound,
		connect.CodeAlreadyExists:      openshell.ErrExists,
		connect.CodeFailedPrecondition: openshell.ErrNotReady,
		connect.CodeUnavailable:        openshell.ErrUnavailable,
		connect.CodeCanceled:           openshell.ErrUnavailable, // by the gateway, not by us
		connect.CodeDeadlineExceeded:   openshell.ErrUnavailable,
		connect.CodeAborted:            openshell.ErrUnavailable,
		connect.CodePermissionDenied:   openshell.ErrDenied,
		connect.CodeUnauthenticated:    openshell.ErrDenied,
		connect.CodeInvalidArgument:    openshell.ErrInvalid,
		connect.CodeUnimplemented:      openshell.ErrUnsupported,
		connect.CodeOutOfRange:         openshell.ErrTooLarge,
		connect.CodeResourceExhausted:  openshell.ErrOverCapacity,
		connect.CodeInternal:           openshell.ErrProtocol,
		connect.CodeUnknown:            openshell.ErrProtocol,
		connect.CodeDataLoss:           openshell.ErrProtocol,
	} {
		g := (&gatewaytest.Gateway{Fail: func(method string) error {
			if method == "Health" {
				return nil
			}
			return fault(code)
		}}).Start(t)
		c := g.Client(t)
		if _, err := c.Get(t.Context(), "a"); !errors.Is(err, want) {
			t.Errorf("Get: %v: have %v, want %v", code, err, want)
		}
		e, err := c.Exec(t.Context(), openshell.ExecRequest{Sandbox: "a", Command: []string{"/bin/true"}})
		if err == nil {
			_, err = e.Wait()
		}
		if !errors.Is(err, want) {
			t.Errorf("Exec: %v: have %v, want %v", code, err, want)
		}
	}
}

func TestGatewayGone(t *testing.T) {
	g := (&gatewaytest.Gateway{}).Start(t)
	c := g.Client(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	hc, err := openshell.HTTPClient("http://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openshell.Open(t.Context(), "http://"+listener.Addr().String(), hc); !errors.Is(err, openshell.ErrUnavailable) {
		t.Errorf("have %v, want %v", err, openshell.ErrUnavailable)
	}
	cause := errors.New("the caller's")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := c.Get(ctx, "a"); !errors.Is(err, cause) {
		t.Errorf("have %v, want %v", err, cause)
	}
}

// TestExec: input of many frames goes in, output comes out as it was written, and
// the exit event is the end whatever the stream does after it.
func TestExec(t *testing.T) {
	hang := make(chan struct{})
	g := (&gatewaytest.Gateway{Exec: func(c *gatewaytest.Command) error {
		switch c.Start.Command[0] {
		case "/echo":
			in, err := io.ReadAll(c.Stdin)
			if err != nil {
				return err
			}
			for part := range slices.Chunk(in, 100000) {
				c.Stdout(string(part))
			}
			c.Stderr("\xff\x00")
			c.Exit(7)
		case "/hang":
			c.Exit(0)
			<-hang
		case "/noexit":
			c.Stdout("x")
		case "/wait":
			c.Stdout("started")
			<-c.Context.Done()
		case "/start":
			if !c.Start.NoLoginShell || c.Start.Workdir != "/w" || c.Start.WorkspaceScope.GetWorkspace() != "default" || c.Start.Tty {
				return fault(connect.CodeInvalidArgument)
			}
			if in, err := io.ReadAll(c.Stdin); err != nil || len(in) > 0 {
				return fault(connect.CodeInvalidArgument)
			}
			c.Exit(0)
		}
		return nil
	}}).Start(t)
	defer close(hang)
	c := g.Client(t)
	create(t, c, "a")
	run := func(ctx context.Context, program string, stdin io.Reader) (string, string, int32, error) {
		var out, errOut bytes.Buffer
		e, err := c.Exec(ctx, openshell.ExecRequest{
			Sandbox: "a", Command: []string{program}, Workdir: "/w", Stdin: stdin,
			OnOutput: func(s openshell.Stream, data []byte) {
				if s == openshell.Stdout {
					out.Write(data)
				} else {
					errOut.Write(data)
				}
			},
		})
		if err != nil {
			return "", "", 0, err
		}
		code, err := e.Wait()
		return out.String(), errOut.String(), code, err
	}
	for _, size := range []int{0, 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 5 << 20} {
		in := strings.Repeat("0123456789abcde\n", size/16+1)[:size]
		out, errOut, code, err := run(t.Context(), "/echo", strings.NewReader(in))
		if err != nil || code != 7 || out != in || errOut != "\xff\x00" {
			t.Errorf("%d bytes: have %d bytes, %q, %d, %v", size, len(out), errOut, code, err)
		}
	}
	if _, _, code, err := run(t.Context(), "/start", nil); err != nil || code != 0 {
		t.Errorf("start: %d, %v", code, err)
	}
	if _, _, code, err := run(t.Context(), "/hang", nil); err != nil || code != 0 {
		t.Errorf("a stream that goes on after its exit: %d, %v", code, err)
	}
	if out, _, _, err := run(t.Context(), "/noexit", nil); !errors.Is(err, openshell.ErrNoExit) || out != "x" {
		t.Errorf("no exit: %q, %v", out, err)
	}
	broken := errors.New("broken input")
	if _, _, _, err := run(t.Context(), "/echo", io.MultiReader(strings.NewReader("x"), &failing{broken})); !errors.Is(err, broken) {
		t.Errorf("broken input: %v", err)
	}
	// A deadline is ours: told to the gateway, it would be the first to say so.
	for range 20 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, broken)
		if _, _, _, err := run(ctx, "/wait", nil); !errors.Is(err, broken) {
			t.Errorf("deadline: %v", err)
		}
		cancel()
	}
}

type failing struct{ err error }

func (f *failing) Read([]byte) (int, error) { return 0, f.err }

func TestListPages(t *testing.T) {
	g := (&gatewaytest.Gateway{PageSize: 2}).Start(t)
	c := g.Client(t)
	for i := range 5 {
		create(t, c, fmt.Sprintf("s%d", i))
	}
	all, err := c.List(t.Context(), map[string]string{"b": "2", "a": "1"})
	if err != nil || len(all) != 5 || all[4].Name != "s4" || all[4].Created.Unix() != 1790000000 {
		t.Errorf("have %d, %v", len(all), err)
	}
}

func TestWait(t *testing.T) {
	var watches atomic.Int32
	g := (&gatewaytest.Gateway{}).Start(t)
	g.Fail = func(method string) error {
		if method == "WatchSandbox" && watches.Add(1) > 1 {
			return fault(connect.CodeUnavailable)
		}
		return nil
	}
	c := g.Client(t)
	create(t, c, "a")
	for _, how := range []string{"watch", "poll"} {
		g.Update(func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_PROVISIONING })
		time.AfterFunc(60*time.Millisecond, func() {
			g.Update(func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_READY })
		})
		s, err := c.Wait(t.Context(), "a", func(s *openshell.Sandbox) bool { return s.Phase == openshell.PhaseReady })
		if err != nil || s.Phase != openshell.PhaseReady {
			t.Errorf("%s: %v", how, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(ctx, "a", func(*openshell.Sandbox) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("never: %v", err)
	}
	if _, err := c.Wait(t.Context(), "b", func(*openshell.Sandbox) bool { return true }); !errors.Is(err, openshell.ErrNotFound) {
		t.Errorf("not there: %v", err)
	}
}

func TestDelete(t *testing.T) {
	for outcome, want := range map[pb.DeletionOutcome]struct {
		gone bool
		err  error
	}{
		pb.DeletionOutcome_DELETION_OUTCOME_COMPLETED:      {true, nil},
		pb.DeletionOutcome_DELETION_OUTCOME_ALREADY_ABSENT: {true, nil},
		pb.DeletionOutcome_DELETION_OUTCOME_ACCEPTED:       {false, nil},
		pb.DeletionOutcome_DELETION_OUTCOME_UNSPECIFIED:    {false, openshell.ErrProtocol},
		77: {false, openshell.ErrProtocol},
	} {
		g := (&gatewaytest.Gateway{Delete: func(m *pb.DeleteSandboxResponse) { m.Outcome = outcome }}).Start(t)
		c := g.Client(t)
		create(t, c, "a")
		if gone, err := c.Delete(t.Context(), "a"); gone != want.gone || !errors.Is(err, want.err) {
			t.Errorf("%v: have %v, %v", outcome, gone, err)
		}
	}
}

// TestHugeAnswer: a gateway cannot have the client take what it likes.
func TestHugeAnswer(t *testing.T) {
	g := (&gatewaytest.Gateway{Sandbox: func(s *pb.Sandbox) { s.Spec.LogLevel = strings.Repeat("x", 17<<20) }}).Start(t)
	c := g.Client(t)
	create(t, c, "a")
	if _, err := c.Get(t.Context(), "a"); err == nil {
		t.Error("17 MiB of an answer were taken")
	}
}

func TestNotGRPC(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }),
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	base := "http://" + listener.Addr().String()
	hc, err := openshell.HTTPClient(base, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer hc.CloseIdleConnections()
	if _, err := openshell.Open(t.Context(), base, hc); err == nil {
		t.Error("a web page passed for a gateway")
	}
}
