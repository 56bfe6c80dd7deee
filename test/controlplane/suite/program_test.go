package suite_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/evictd/evictd/test/controlplane/harness"
)

// process is one of evictd's programs as it runs.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	log   *text
	ended chan struct{}
	http  http.Client
}

// text grows while others read it.
type text struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(b)
}

func (l *text) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// start runs a program with a status address of its own until the test ends.
func start(t testing.TB, name string, args ...string) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "evictd-status-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "status.sock")
	p := &process{t: t, cmd: exec.Command(program(name), append(args, "--status-address=unix:"+socket)...), log: &text{}, ended: make(chan struct{})}
	p.cmd.Stderr = p.log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.http.Timeout = patience
	p.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		p.cmd.Wait()
	}()
	t.Cleanup(p.stop)
	await(t, name+" to be ready", func() bool {
		select {
		case <-p.ended:
			t.Fatalf("%s ended: %v\n%s", name, p.cmd.ProcessState, p.log)
		default:
		}
		response, err := p.http.Get("http://program/readyz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return p
}

// stop ends the program in order, which is exit code 0, unless it was killed.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	status, _ := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if code := p.cmd.ProcessState.ExitCode(); code != 0 && status.Signal() != syscall.SIGKILL {
		p.t.Errorf("%s ended with %v", filepath.Base(p.cmd.Path), p.cmd.ProcessState)
	}
	if p.t.Failed() {
		p.t.Logf("log of %s:\n%s", filepath.Base(p.cmd.Path), p.log)
	}
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// kubectl runs a current kubectl as the administrator.
func (a *api) kubectl(args ...string) string {
	a.t.Helper()
	path, err := harness.Program("kubectl")
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := exec.CommandContext(a.t.Context(), path, append(a.Args(harness.Admin), args...)...).CombinedOutput()
	if err != nil {
		a.t.Fatalf("kubectl %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// grant gives evictd's programs the rights of docs/rbac, where rights matter.
func (a *api) grant() {
	a.t.Helper()
	if a.Name != "kube-apiserver" {
		return
	}
	root, err := harness.Root()
	if err != nil {
		a.t.Fatal(err)
	}
	a.kubectl("apply", "--server-side", "--filename="+filepath.Join(root, "docs/rbac"))
}
