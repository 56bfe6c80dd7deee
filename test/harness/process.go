package harness

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// Await returns once the condition holds, and fails the test where it does not within
// wait.Limit.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	wait.Until(t, what, holds)
}

// Need is the path of a program of the system, in PATH or where Debian keeps those of its
// administrator. It skips the test where the program is missing, and names Debian's
// package that has it.
func Need(t testing.TB, program, debian string) string {
	t.Helper()
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path
		}
	}
	t.Skipf("skipped: there is no %s: Debian's package %s has it", program, debian)
	return ""
}

// Process is a program as it runs, or, where a test did not start it, what it serves.
type Process struct {
	T testing.TB

	service *process.Service // nil where the test did not start it
	client  *http.Client
	stopped bool
}

// At is a program that runs without the test and serves on a unix socket.
func At(t testing.TB, socket string) *Process {
	return &Process{T: t, client: process.Client(socket), stopped: true}
}

// Run runs a program until the test ends, where it must end with exit code 0.
func Run(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	return run(t, "", cmd)
}

// Serve is Run for a program that serves on a unix socket. It returns once the program
// is ready.
func Serve(t testing.TB, socket string, cmd *exec.Cmd) *Process {
	t.Helper()
	p := run(t, socket, cmd)
	ctx, cancel := limited()
	defer cancel()
	require.NoError(t, p.service.Ready(ctx))
	return p
}

func run(t testing.TB, socket string, cmd *exec.Cmd) *Process {
	t.Helper()
	service, err := process.Serve(t.TempDir(), socket, cmd)
	require.NoError(t, err)
	p := &Process{T: t, service: service, client: process.Client(socket)}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("log of %s:\n%s", service.Name(), service.Log())
		}
	})
	return p
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), wait.Limit)
}

// AwaitEnd waits until the program ends by itself, which must be with exit code 0.
func (p *Process) AwaitEnd() {
	p.T.Helper()
	p.stopped = true
	Await(p.T, p.service.Name()+" to end", func() bool { return !p.service.Running() })
	if _, state := p.service.End(); !state.Success() {
		p.T.Errorf("%s ended by %v", p.service.Name(), state)
	}
}

// Stop ends the program, which must be with exit code 0, unless the test has ended it.
func (p *Process) Stop() {
	p.T.Helper()
	if p.stopped {
		return
	}
	p.stopped = true
	ctx, cancel := limited()
	defer cancel()
	if err := p.service.Stop(ctx); err != nil {
		p.T.Error(err)
	}
}

// Kill ends the program by SIGKILL.
func (p *Process) Kill() {
	p.stopped = true
	p.service.Kill()
}

// Signal sends the program a signal.
func (p *Process) Signal(s os.Signal) {
	p.T.Helper()
	require.NoError(p.T, p.service.Signal(s))
}

// PID is the program's process id.
func (p *Process) PID() int { return p.service.PID() }

// Log is what the program has logged so far.
func (p *Process) Log() string { return p.service.Log() }

// Get reads a document of the status address.
func (p *Process) Get(path string) ([]byte, error) {
	ctx, cancel := limited()
	defer cancel()
	return process.Get(ctx, p.client, path)
}

// Finish runs a program that ends by itself, and fails the test where it does not.
func Finish(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	p, err := process.Start(cmd)
	require.NoError(t, err)
	ctx, cancel := limited()
	defer cancel()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		p.Kill()
		t.Fatalf("%s has not ended within %v", cmd, wait.Limit)
	}
	_, state := p.End()
	return out.String(), errs.String(), state.ExitCode()
}
