package node_test

import (
	"os/exec"
	"path/filepath"
)

// apiSocket is where the node's embedded API serves.
func (n *node) apiSocket() string { return filepath.Join(n.dir, "api.sock") }

// runEmbeddedAPI runs the embedded API on a socket of the node's own until the
// test ends.
func (n *node) runEmbeddedAPI() *daemon {
	n.t.Helper()
	return n.launchAt(n.apiSocket(), exec.Command(sibling("evictd-apiserver"), "--data="+filepath.Join(n.dir, "api"), "--listen=unix:"+n.apiSocket()), nil)
}
