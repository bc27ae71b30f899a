package runner

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-attest/plimsoll/call"
	"github.com/plimsoll-attest/plimsoll/runner/openshell"
)

// A box is a sandbox of ours and what it was asked to be.
type box struct {
	runner  *Runner
	gateway openshell.Gateway
	name    string
	id      string
	spec    openshell.Spec
	seen    seen
	idle    bool // its slot was given back
}

// mainCommand is the main process of every sandbox: no shell, and nothing that
// ends by itself.
var mainCommand = []string{"sleep", "2147483647"}

// createTries is how many names are tried: a random one is in use only by
// mischief.
const createTries = 3

// newBox takes a slot and makes a sandbox that was read back and prepared. The
// slot is given back when the sandbox is gone (box.discard).
func (r *Runner) newBox(ctx context.Context, tmpSize int64, lifetime time.Duration) (*box, *prepared, *call.Refused) {
	r.mu.Lock()
	closed := r.closed
	if !closed {
		r.pending.Add(1)
	}
	r.mu.Unlock()
	if closed {
		return nil, nil, call.Refuse(call.CodeUnavailable, call.ReasonCapacity, "the runner is shutting down")
	}
	select {
	case r.slots <- struct{}{}:
	default:
		r.pending.Done()
		return nil, nil, call.Refuse(call.CodeResourceExhausted, call.ReasonCapacity, "%d sandboxes are all there may be", cap(r.slots))
	}
	b := &box{runner: r, gateway: r.gateway, spec: openshell.Spec{
		Image: r.config.Image, Command: mainCommand, Limits: r.config.Limits,
		TmpSize: tmpSize, Driver: dockerDriver, Policy: r.config.Policy,
		Labels: map[string]string{
			labelInstance: r.config.Instance,
			labelRun:      "1",
			labelLifetime: strconv.FormatInt(int64((lifetime+time.Second-1)/time.Second), 10),
		},
	}}
	if r.config.Local {
		b.spec.Driver = localDriver
	}
	p, refused := b.make(ctx)
	if refused != nil {
		b.discard()
		return nil, nil, refused
	}
	return b, p, nil
}

func (b *box) make(ctx context.Context) (*prepared, *call.Refused) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	var made *openshell.Sandbox
	var err error
	for range createTries {
		b.name = "plim-" + randomHex(7)
		b.spec.Name = b.name
		if made, err = b.gateway.Create(ctx, b.spec); !errors.Is(err, openshell.ErrExists) {
			break
		}
		b.name = "" // another's: not ours to delete
	}
	if err != nil {
		return nil, gatewayGone("create sandbox", err)
	}
	if made.Name != b.name || made.ID == "" {
		return nil, wrongGateway("create sandbox: name: have %.60q, want %q", made.Name, b.name)
	}
	b.id = made.ID
	if refused := b.wait(ctx); refused != nil {
		return nil, refused
	}
	return b.check(ctx)
}

// check reads the sandbox back and prepares it. Nothing of a call runs in it while
// this is going on.
func (b *box) check(ctx context.Context) (*prepared, *call.Refused) {
	b.seen.started = false
	if refused := b.readBack(ctx); refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	r, err := b.exec(ctx, b.runner.script(prepareScript), "/", nil, maxScriptOutput)
	switch {
	case err != nil:
		return nil, gatewayGone("prepare sandbox", err)
	case r.exitCode == 126 || r.exitCode == 127:
		return nil, wrongGateway("the sandbox has no /usr/bin/env or /bin/sh: status %d: %.200q", r.exitCode, r.stderr.kept)
	case r.exitCode == noWorkFolder:
		return nil, wrongGateway("prepare sandbox: %s cannot be used", workDir)
	case r.exitCode != 0:
		return nil, wrongGateway("prepare sandbox: status %d: %.200q", r.exitCode, r.stderr.kept)
	}
	p, err := parsePrepared(r.stdout.kept)
	if err != nil {
		return nil, wrongGateway("prepare sandbox: %w", err)
	}
	return p, nil
}

// wait waits until the sandbox is ready, or can no longer become so.
func (b *box) wait(ctx context.Context) *call.Refused {
	s, err := b.gateway.Wait(ctx, b.name, func(s *openshell.Sandbox) bool {
		switch s.Phase {
		case openshell.PhaseProvisioning, openshell.PhaseStarting, openshell.PhaseStopping, openshell.PhaseStopped:
			// A policy that was not taken stays in this phase for minutes.
			return slices.Contains(s.Reasons, "ConfigurationInvalid")
		}
		return true
	})
	if err != nil {
		return gatewayGone("wait for the sandbox", err)
	}
	if s.Phase != openshell.PhaseReady {
		return wrongGateway("the sandbox did not become ready: phase %v (%.200s): %.512s", s.Phase, strings.Join(s.Reasons, ", "), s.Detail)
	}
	return nil
}

// discard deletes the sandbox without anybody waiting, and gives its slot back
// when it is gone. A sandbox that cannot be deleted keeps its slot.
func (b *box) discard() {
	go func() {
		defer b.runner.pending.Done()
		ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
		defer cancel()
		if err := b.remove(ctx); err != nil {
			b.runner.config.Log("sandbox %s is still there and has to be deleted: %v", b.name, err)
			return
		}
		if !b.idle {
			<-b.runner.slots
		}
	}()
}

// remove deletes the sandbox, again and again, until it is gone.
func (b *box) remove(ctx context.Context) error {
	if b.name == "" {
		return nil
	}
	pause := 50 * time.Millisecond
	for {
		gone, err := b.gateway.Delete(ctx, b.name)
		switch {
		case err == nil && gone, errors.Is(err, openshell.ErrNotFound):
			return nil
		case err == nil:
			// Only accepted. A name can be used anew, so the ID tells.
			s, getErr := b.gateway.Get(ctx, b.name)
			if errors.Is(getErr, openshell.ErrNotFound) || getErr == nil && b.id != "" && s.ID != b.id {
				return nil
			}
			err = errors.New("its deletion was accepted and is not through")
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
		pause = min(2*pause, maxDeleteWait)
	}
}

// restart ends every process of the sandbox and starts it anew with its files.
func (b *box) restart(ctx context.Context) (*prepared, *call.Refused) {
	if _, err := b.gateway.Stop(ctx, b.name); err != nil {
		return nil, gatewayGone("stop sandbox", err)
	}
	if refused := b.waitStopped(ctx); refused != nil {
		return nil, refused
	}
	return b.resume(ctx)
}

func (b *box) waitStopped(ctx context.Context) *call.Refused {
	s, err := b.gateway.Wait(ctx, b.name, func(s *openshell.Sandbox) bool {
		return s.Phase != openshell.PhaseReady && s.Phase != openshell.PhaseStopping
	})
	if err != nil {
		return gatewayGone("wait for the sandbox to stop", err)
	}
	if s.Phase != openshell.PhaseStopped {
		return wrongGateway("the sandbox did not stop: phase %v (%.200s)", s.Phase, strings.Join(s.Reasons, ", "))
	}
	return nil
}

// resume starts a stopped sandbox and checks it like a new one.
func (b *box) resume(ctx context.Context) (*prepared, *call.Refused) {
	if _, err := b.gateway.Start(ctx, b.name); err != nil {
		return nil, gatewayGone("start sandbox", err)
	}
	if refused := b.wait(ctx); refused != nil {
		return nil, refused
	}
	return b.check(ctx)
}
