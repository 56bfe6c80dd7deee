// Package scheduler runs kube-scheduler and evictd-scheduler as programs, each by the
// flags that have the same effect, and reads what both count.
package scheduler

import (
	"net"
	"os/exec"
	"path/filepath"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
)

// The schedulers, by their programs.
const (
	Kube   = "kube-scheduler"
	Evictd = "evictd-scheduler"
)

// Command is how a scheduler is run on a kube-apiserver, without a limit to its rate of
// requests, and where its metrics are. Files of its own are in a directory.
func Command(program, kubeconfig, dir string, more ...string) (*exec.Cmd, *Page, error) {
	if filepath.Base(program) == Evictd {
		socket := filepath.Join(dir, "status.sock")
		args := sandbox.Scheduler(socket, append(more, sandbox.Kubeconfig(kubeconfig))...)
		return exec.Command(program, args...), atSocket(socket), nil
	}
	free, err := process.Addresses(1)
	if err != nil {
		return nil, nil, err
	}
	host, port, _ := net.SplitHostPort(free[0])
	args := []string{
		sandbox.Kubeconfig(kubeconfig), "--kube-api-qps=5000", "--kube-api-burst=5000", "--leader-elect=false",
		"--bind-address=" + host, "--secure-port=" + port, "--cert-dir=" + dir,
		"--authentication-skip-lookup", "--authorization-always-allow-paths=/metrics",
	}
	return exec.Command(program, append(args, more...)...), atAddress(free[0], filepath.Join(dir, Kube+".crt")), nil
}
