package node_test

import (
	"errors"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
)

// startEmbeddedAPI runs the embedded API on a socket of the node's own until the
// test ends, and returns its address.
func (n *node) startEmbeddedAPI() string {
	n.t.Helper()
	socket := filepath.Join(n.dir, "api.sock")
	server := exec.Command(filepath.Join(filepath.Dir(program), "evictd-apiserver"), "--data="+filepath.Join(n.dir, "api"), "--listen=unix:"+socket)
	log := &logText{}
	server.Stderr = log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait()); err != nil {
			n.t.Errorf("the embedded API did not end in order: %v", err)
		}
		if n.t.Failed() {
			n.t.Logf("log of the embedded API:\n%s", log)
		}
	})
	await(n.t, "the embedded API", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return "unix:" + socket
}
