package suite_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/evictd/evictd/test/controlplane/harness"
)

// process is one of evictd's programs as it runs.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	ended chan struct{}
	http  http.Client
}

// logged has a program write its log to a file, which is shown where the test fails.
func logged(t testing.TB, command *exec.Cmd) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	command.Stderr = file
	t.Cleanup(func() {
		if text, _ := os.ReadFile(file.Name()); t.Failed() {
			t.Logf("log of %s:\n%s", filepath.Base(command.Path), text)
		}
	})
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
	p := &process{t: t, cmd: exec.Command(program(name), append(args, "--status-address=unix:"+socket)...), ended: make(chan struct{})}
	logged(t, p.cmd)
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
			t.Fatalf("%s ended: %v", name, p.cmd.ProcessState)
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
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// foreign is the path of a program of Kubernetes. Where it is not built, the test is
// skipped.
func foreign(t testing.TB, name string) string {
	t.Helper()
	path, err := harness.Program(name)
	if _, unavailable := errors.AsType[*harness.UnavailableError](err); unavailable {
		t.Skip("skipped:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl runs a current kubectl as the administrator.
func (a *api) kubectl(args ...string) string {
	a.t.Helper()
	path := foreign(a.t, "kubectl")
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
