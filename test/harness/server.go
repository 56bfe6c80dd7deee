package harness

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/sandbox"
)

// APIServer runs the embedded API on a unix socket, with its objects in a directory.
func APIServer(t testing.TB, socket, data string, flags ...string) *Process {
	t.Helper()
	return Serve(t, socket, exec.Command(Program(t, "evictd-apiserver"), sandbox.APIServer(socket, data, flags...)...))
}

// Scheduler runs evictd-scheduler with its status address on a unix socket.
func Scheduler(t testing.TB, socket string, flags ...string) *Process {
	t.Helper()
	return Serve(t, socket, exec.Command(Program(t, "evictd-scheduler"), sandbox.Scheduler(socket, flags...)...))
}

// APIServer runs the node's embedded API, again where it was killed.
func (n *Node) APIServer() *Process {
	n.T.Helper()
	return APIServer(n.T, n.APISocket(), filepath.Join(n.Dir, "api"))
}

// APISocket is where the node's embedded API serves.
func (n *Node) APISocket() string { return filepath.Join(n.Dir, "api.sock") }
