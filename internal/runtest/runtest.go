// Package runtest is what tests of running things share: it waits, keeps what is
// logged, and runs programs that serve a status address. It asserts nothing but that
// they end in order. Nothing but tests imports it.
package runtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience bounds every wait for something that is to come, on emulated processors
// too. Nothing is asserted of how fast it comes.
const Patience = 90 * time.Second

// Await asks until the condition holds.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	AwaitFor(t, Patience, what, holds)
}

// AwaitFor is Await with a patience of its own.
func AwaitFor(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
	}
}

// Need is the path of a program of the system, in PATH or where the system keeps those
// of its administrator. Where it is not installed, the test is skipped and the package
// of Debian named that has it.
func Need(t testing.TB, program, debian string) (path string) {
	t.Helper()
	path, err := Find(program, debian)
	if err != nil {
		t.Skip("skipped:", err)
	}
	return path
}

// Find is Need without a test.
func Find(program, debian string) (path string, err error) {
	for _, dir := range []string{"", "/usr/sbin/", "/sbin/"} {
		if path, err = exec.LookPath(dir + program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s: Debian's package %s has it", program, debian)
}

// Log is what was written to it so far, by any goroutine.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Program is one of evictd's as it runs. What it says is asked on a unix socket.
type Program struct {
	// Log is its standard error, unless that goes elsewhere.
	Log Log

	t       testing.TB
	client  http.Client
	process *exec.Cmd     // nil where somebody else runs it
	ended   chan struct{} // closed once process is reaped
	stopped bool
}

// At is a program that somebody else runs and that serves on a socket.
func At(t testing.TB, socket string) *Program {
	return &Program{t: t, client: ClientOf(socket), stopped: true}
}

// ClientOf asks who serves on a socket, whatever the host of the URL.
func ClientOf(socket string) http.Client {
	return http.Client{Timeout: Patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
}

// Run runs a program. It ends in order before the test does, unless that has ended it
// before.
func Run(t testing.TB, process *exec.Cmd) *Program {
	t.Helper()
	p := &Program{t: t, process: process, ended: make(chan struct{})}
	if process.Stderr == nil {
		process.Stderr = &p.Log
	}
	if process.SysProcAttr == nil {
		process.SysProcAttr = &syscall.SysProcAttr{}
	}
	process.SysProcAttr.Setsid, process.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = process.Wait() // its state says how it ended
	}()
	t.Cleanup(p.Stop)
	return p
}

// Start runs a program that serves on a socket, and returns once it is ready.
func Start(t testing.TB, socket string, process *exec.Cmd) *Program {
	t.Helper()
	p := Run(t, process)
	p.client = ClientOf(socket)
	Await(t, p.name()+" to be ready", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("%s has ended before it was ready", p.name())
		default:
		}
		_, err := p.Get("/readyz")
		return err == nil
	})
	return p
}

func (p *Program) name() string { return filepath.Base(p.process.Args[0]) }

// Stop ends the program in order, which is exit code 0, unless it was ended before.
func (p *Program) Stop() {
	if p.stopped {
		return
	}
	p.end(syscall.SIGTERM)
	if !p.process.ProcessState.Success() {
		p.t.Errorf("%s did not end in order: %v", p.name(), p.process.ProcessState)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", p.name(), &p.Log)
	}
}

// Kill ends the program by SIGKILL.
func (p *Program) Kill() { p.end(syscall.SIGKILL) }

func (p *Program) end(s os.Signal) {
	p.stopped = true
	p.Hush()
	_ = p.process.Process.Signal(s) // fails where it has ended
	<-p.ended
}

// Signal sends the program a signal.
func (p *Program) Signal(s os.Signal) {
	p.t.Helper()
	if err := p.process.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Pid is the program's process id.
func (p *Program) Pid() int { return p.process.Process.Pid }

// Hush closes connections on which nothing is asked.
func (p *Program) Hush() { p.client.CloseIdleConnections() }

// Get gets a document of the status address.
func (p *Program) Get(path string) ([]byte, error) {
	response, err := p.client.Get("http://localhost" + path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return body, err
}
