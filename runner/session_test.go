package runner_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/internal/gatewaytest"
	"github.com/plimsoll-attest/plimsoll/runner"
	pb "github.com/plimsoll-attest/plimsoll/runner/openshell/openshellb"
)

// open makes a session that is closed when the test ends.
func open(t *testing.T, r *runner.Runner) *runner.Session {
	t.Helper()
	s, err := r.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ended waits until the session has ended, and says how.
func ended(t *testing.T, s *runner.Session) string {
	t.Helper()
	for range 500 {
		if end, _ := s.Ended(); end != "" {
			return end
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("the session has not ended")
	return ""
}

func mustRun(t *testing.T, s *runner.Session) *runner.Answer {
	t.Helper()
	a, err := s.Run(t.Context(), parse(t, snippet))
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, a)
	return a
}

func TestSessionSweeps(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	s := open(t, newRunner(t, g, nil))
	mustRun(t, s)
	mustRun(t, s)
	c, err := s.Close(t.Context())
	if err != nil || c.Calls != 2 {
		t.Errorf("close %+v, %v", c, err)
	}
	if have := strings.Join(guest.commands(), " "); !strings.HasPrefix(have, "prepare node sweep node") {
		t.Errorf("commands: %s", have)
	}
	var refused *call.Refused
	if _, err := s.Run(t.Context(), parse(t, snippet)); !errors.As(err, &refused) || !errors.Is(err, runner.ErrSessionEnded) ||
		refused.Code != "failed_precondition" || refused.Reason != "request" || !strings.Contains(refused.Detail, runner.EndClosed) {
		t.Errorf("after close: %v", err)
	}
}

// TestSweepOffThePath: the answer does not wait for the sweep, the next call does.
func TestSweepOffThePath(t *testing.T) {
	release := make(chan struct{})
	guest := &guest{}
	guest.set(sweep, func(c *gatewaytest.Command) error { <-release; c.Exit(0); return nil })
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	s := open(t, newRunner(t, g, nil))
	mustRun(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, parse(t, snippet)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the next call did not wait: %v", err)
	}
	close(release)
	if a := mustRun(t, s); a.Record.Sequence != 2 {
		t.Errorf("the refused call took a number: %d", a.Record.Sequence)
	}
}

// TestUncleanSweep: what the sweep cannot prove, a stop and start does, after which
// the sandbox is read back and its processes are recorded anew.
func TestUncleanSweep(t *testing.T) {
	for name, do := range map[string]func(*gatewaytest.Command) error{
		"not clean": exits(66),
		"killed":    exits(137),
		"lost":      func(*gatewaytest.Command) error { return fault(connect.CodeUnavailable) },
		"no exit":   func(*gatewaytest.Command) error { return nil },
	} {
		guest := &guest{}
		guest.set(sweep, do)
		g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
		s := open(t, newRunner(t, g, nil))
		mustRun(t, s)
		a := mustRun(t, s)
		// The sweep of the second call may be at work too.
		if a.Record.Sequence != 2 || g.Calls("StopSandbox") < 1 || g.Calls("StartSandbox") < 1 {
			t.Errorf("%s: %d, %d stops", name, a.Record.Sequence, g.Calls("StopSandbox"))
		}
		if have := strings.Join(guest.commands(), " "); !strings.HasPrefix(have, "prepare node sweep prepare node") {
			t.Errorf("%s: commands: %s", name, have)
		}
	}
}

func TestSessionEnds(t *testing.T) {
	for name, c := range map[string]struct {
		sweep func(*gatewaytest.Command) error
		fail  string
		then  func(*gatewaytest.Gateway)
		want  string
	}{
		"main process, by the sweep": {sweep: exits(67), want: runner.EndMainProcess},
		"disk, by the sweep":         {sweep: exits(68), want: runner.EndDisk},
		"disk, not measured":         {sweep: exits(69), want: runner.EndDisk},
		"not clean, no stop":         {sweep: exits(66), fail: "StopSandbox", want: runner.EndBoundaryFailed},
		"not clean, no start":        {sweep: exits(66), fail: "StartSandbox", want: runner.EndBoundaryFailed},
		"main process, by its phase": {then: func(g *gatewaytest.Gateway) {
			g.Update(func(s *pb.Sandbox) { s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_ERROR })
		}, want: runner.EndMainProcess},
		"disk, by its reason": {then: func(g *gatewaytest.Gateway) {
			g.Update(func(s *pb.Sandbox) {
				s.Status.Phase = pb.SandboxPhase_SANDBOX_PHASE_ERROR
				s.Status.Conditions[0].Reason = "DiskBudgetExceeded"
			})
		}, want: runner.EndDisk},
		"main process changed": {then: func(g *gatewaytest.Gateway) {
			g.Update(func(s *pb.Sandbox) { s.Status.MainProcessInstanceId = "another" })
		}, want: runner.EndChanged},
		"another sandbox of the name": {then: func(g *gatewaytest.Gateway) {
			g.Update(func(s *pb.Sandbox) { s.Metadata.Id = "another" })
		}, want: runner.EndChanged},
		"provider attached": {then: func(g *gatewaytest.Gateway) {
			g.Update(func(s *pb.Sandbox) { s.Spec.Providers = []string{"x"} })
		}, want: runner.EndChanged},
	} {
		t.Run(name, func(t *testing.T) {
			guest := &guest{}
			if c.sweep != nil {
				guest.set(sweep, c.sweep)
			}
			g := &gatewaytest.Gateway{Exec: guest.exec, Fail: func(method string) error {
				if method == c.fail {
					return fault(connect.CodeUnavailable)
				}
				return nil
			}}
			s := open(t, newRunner(t, g.Start(t), nil))
			mustRun(t, s)
			if c.then != nil {
				time.Sleep(100 * time.Millisecond) // the sweep is through
				c.then(g)
			}
			_, err := s.Run(t.Context(), parse(t, snippet))
			var refused *call.Refused
			if !errors.As(err, &refused) || !errors.Is(err, runner.ErrSessionEnded) || !strings.Contains(refused.Detail, c.want) {
				t.Errorf("have %v, want %s", err, c.want)
			}
			if end, _ := s.Ended(); end != c.want {
				t.Errorf("have %q, want %q", end, c.want)
			}
			closed, err := s.Close(t.Context())
			if err != nil || closed.Calls != 1 || closed.LastRecordSHA256 == "" {
				t.Errorf("close %+v, %v", closed, err)
			}
		})
	}
}

// TestGatewayBlip: a read-back without an answer refuses the call, not the session.
func TestGatewayBlip(t *testing.T) {
	var down atomic.Bool
	guest := &guest{}
	g := &gatewaytest.Gateway{Exec: guest.exec, Fail: func(method string) error {
		if method == "GetSandboxConfig" && down.Load() {
			return fault(connect.CodeUnavailable)
		}
		return nil
	}}
	s := open(t, newRunner(t, g.Start(t), nil))
	mustRun(t, s)
	down.Store(true)
	var refused *call.Refused
	if _, err := s.Run(t.Context(), parse(t, snippet)); !errors.As(err, &refused) || refused.Code != "unavailable" {
		t.Errorf("have %v", err)
	}
	down.Store(false)
	if a := mustRun(t, s); a.Record.Sequence != 2 {
		t.Errorf("have call %d, want 2", a.Record.Sequence)
	}
}

func TestUnanswered(t *testing.T) {
	hang := func(c *gatewaytest.Command) error { <-c.Context.Done(); return nil }
	for name, c := range map[string]struct {
		do      func(*gatewaytest.Command) error
		timeout string
		cancel  bool
		sweep   func(*gatewaytest.Command) error
		noStop  bool
		want    string
	}{
		"stream lost":            {do: func(*gatewaytest.Command) error { return fault(connect.CodeUnavailable) }, want: "unavailable"},
		"no exit":                {do: func(*gatewaytest.Command) error { return nil }, want: "unavailable"},
		"broken protocol":        {do: func(*gatewaytest.Command) error { return fault(connect.CodeInternal) }, want: "internal"},
		"caller gave up":         {do: hang, cancel: true, want: "canceled"},
		"deadline, kill unknown": {do: hang, timeout: "200", sweep: exits(66), noStop: true, want: "deadline_exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			guest := &guest{}
			guest.set(node, c.do)
			if c.sweep != nil {
				guest.set(sweep, c.sweep)
			}
			g := &gatewaytest.Gateway{Exec: guest.exec, Fail: func(method string) error {
				if method == "StopSandbox" && c.noStop {
					return fault(connect.CodeUnavailable)
				}
				return nil
			}}
			s := open(t, newRunner(t, g.Start(t), nil))
			ctx := t.Context()
			if c.cancel {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, 200*time.Millisecond, context.Canceled)
				defer cancel()
			}
			line := snippet
			if c.timeout != "" {
				line = `{"timeout_ms":` + c.timeout + `,"javascript":{"code":"1"}}`
			}
			_, err := s.Run(ctx, parse(t, line))
			var u *runner.Unanswered
			if !errors.As(err, &u) {
				t.Fatalf("have %v, want it unanswered", err)
			}
			if u.Record.Unanswered != c.want || u.Record.Version != 3 || u.Record.ResultSHA256 != "" || u.Record.Sequence != 1 ||
				u.Record.CheckFields() != nil {
				t.Errorf("have %+v, want %s", u.Record, c.want)
			}
			if c.noStop {
				return
			}
			// The chain goes on with the next call.
			guest.set(node, nil)
			if a := mustRun(t, s); a.Record.Sequence != 2 || a.Record.PreviousSHA256 != u.Record.RecordSHA256 {
				t.Errorf("have %+v", a.Record)
			}
		})
	}
}

// TestDeadlineInSession: a call's deadline ends the call and not the session, and
// its answer waits for the sweep.
func TestDeadlineInSession(t *testing.T) {
	guest := &guest{}
	guest.set(node, func(c *gatewaytest.Command) error { c.Stdout("so far"); <-c.Context.Done(); return nil })
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	s := open(t, newRunner(t, g, nil))
	a, err := s.Run(t.Context(), parse(t, `{"timeout_ms":200,"javascript":{"code":"1"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if js := a.Result.JavaScript; !js.TimedOut || string(js.Stdout) != "so far" {
		t.Errorf("have %+v", js)
	}
	if have := guest.commands(); have[len(have)-1] != sweep {
		t.Errorf("the answer came before the sweep: %q", have)
	}
	guest.set(node, nil)
	mustRun(t, s)
}

func TestSuspendAndResume(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	r := newRunner(t, g, func(c *runner.Config) { c.Idle = time.Second; c.MaxSandboxes = 1 })
	s := open(t, r)
	mustRun(t, s)
	for range 100 {
		if g.Calls("StopSandbox") > 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond)
	// A suspended session holds no slot.
	if _, err := r.Run(t.Context(), parse(t, snippet)); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if a, err := s.Run(t.Context(), parse(t, snippet)); err == nil {
			if a.Record.Sequence != 2 {
				t.Errorf("have %+v", a.Record)
			}
			break
		}
		time.Sleep(20 * time.Millisecond) // until the single run's sandbox is gone
	}
	if g.Calls("StartSandbox") != 1 {
		t.Errorf("%d starts", g.Calls("StartSandbox"))
	}
}

func TestLifetime(t *testing.T) {
	guest := &guest{}
	g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
	s := open(t, newRunner(t, g, func(c *runner.Config) { c.Lifetime = time.Second }))
	mustRun(t, s)
	if end := ended(t, s); end != runner.EndExpired {
		t.Errorf("have %q", end)
	}
}

// TestTraceableSandbox: sessions are refused where a leftover could trace the sweep.
func TestTraceableSandbox(t *testing.T) {
	for said, want := range map[string]string{
		"ptrace 0\nprocess 1 2\n": "ptrace_scope",
		"process 1 2\n":           "ptrace_scope",
		"ptrace 1\n":              "no process",
	} {
		guest := &guest{}
		guest.set(prepare, func(c *gatewaytest.Command) error { c.Stdout(said); c.Exit(0); return nil })
		g := (&gatewaytest.Gateway{Exec: guest.exec}).Start(t)
		_, err := newRunner(t, g, nil).Open(t.Context())
		var refused *call.Refused
		if !errors.As(err, &refused) || !strings.Contains(refused.Detail, want) {
			t.Errorf("%q: have %v, want %s", said, err, want)
		}
	}
}
