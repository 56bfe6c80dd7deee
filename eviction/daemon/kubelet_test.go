package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
)

// TestAKubeletIsKnownByWhatItHolds has processes in a directory that stands for /proc, and sockets
// below one that stands for the root directory.
//
// rule: M.192
func TestAKubeletIsKnownByWhatItHolds(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: a socket of root takes root")
	}
	runs := func(name, uid, namespaces string) string {
		return fmt.Sprintf("Name:\t%s\nState:\tS (sleeping)\nUid:\t%s\t%s\t%s\t%s\nNSpid:\t%s\n", name, uid, uid, uid, uid, namespaces)
	}
	const line = "   0: 00000000000000000000000000000000:%04X 00000000000000000000000000000000:0000 %s 00000000:00000000 00:00000000 00000000 %5d        0 %d 1 0000000000000000 100 0 0 10 0\n"
	root, other := 0, 65534
	for _, c := range []struct {
		name      string
		processes map[string]string // status by pid
		arguments string            // of process 7
		tcp       string
		port      int    // the inode that process 7 holds
		socket    string // of a directory below the root
		user      int    // the uid of the listener; negative for a socket without one
		want      string // part of what the kubelet is recognized by; "" for none
	}{
		{name: "the kubelet", processes: map[string]string{"7": runs("kubelet", "0", "7")}, want: "kubelet, pid 7, known by its name"},
		{name: "a program of another user that calls itself kubelet", processes: map[string]string{"7": runs("kubelet", "1000", "7")}},
		{name: "root of a container that calls itself kubelet", processes: map[string]string{"7": runs("kubelet", "0", "7\t1")}},
		{name: "root of a user namespace that calls itself kubelet", processes: map[string]string{"7": runs("kubelet", "100000", "7")}},
		{name: "a name with another's line in it", processes: map[string]string{"7": runs(`x\nName:\tkubelet`, "0", "7")}},
		{name: "a longer name", processes: map[string]string{"7": runs("kubelets", "0", "7")}},
		{name: "a kubelet that has ended and is not waited for", processes: map[string]string{"7": strings.Replace(runs("kubelet", "0", "7"), "S (sleeping)", "Z (zombie)", 1)}},
		{name: "a process that has gone", processes: map[string]string{"7": ""}},
		{name: "k3s server", processes: map[string]string{"7": runs("k3s-server", "0", "7")}, socket: "/var/lib/kubelet/pod-resources/kubelet.sock", want: "listens on "},
		{name: "k3s server that runs no kubelet", processes: map[string]string{"7": runs("k3s-server", "0", "7")}},
		{name: "k3s agent", processes: map[string]string{"7": runs("k3s-agent", "0", "7")}, socket: "/var/lib/kubelet/device-plugins/kubelet.sock", want: "listens on "},
		{name: "kubelite of microk8s", processes: map[string]string{"7": runs("kubelite", "0", "7")}, socket: "/var/snap/microk8s/common/var/lib/kubelet/pod-resources/kubelet.sock", want: "listens on "},
		{name: "microshift", processes: map[string]string{"7": runs("microshift", "0", "7")}, socket: "/var/lib/kubelet/device-plugins/kubelet.sock", want: "listens on "},
		{name: "edgecore", processes: map[string]string{"7": runs("edgecore", "0", "7")}, socket: "/var/lib/kubelet/device-plugins/kubelet.sock", want: "listens on "},
		{name: "k0s", socket: "/var/lib/k0s/kubelet/pod-resources/kubelet.sock", want: "listens on "},
		{name: "a directory by --nodefs", socket: "/data/node/pod-resources/kubelet.sock", want: "listens on "},
		{name: "a directory by --root-dir", processes: map[string]string{"7": runs("hyperkube", "0", "7")}, arguments: "/hyperkube\x00kubelet\x00--root-dir=/srv/k\x00", socket: "/srv/k/device-plugins/kubelet.sock", want: "listens on "},
		{name: "a directory by --root-dir and a word", processes: map[string]string{"7": runs("hyperkube", "0", "7")}, arguments: "/hyperkube\x00--root-dir\x00/srv/k\x00", socket: "/srv/k/device-plugins/kubelet.sock", want: "listens on "},
		{name: "a directory that another user names", processes: map[string]string{"7": runs("x", "1000", "7")}, arguments: "x\x00--root-dir=/srv/k\x00", socket: "/srv/k/device-plugins/kubelet.sock"},
		{name: "another user at the socket", socket: "/var/lib/kubelet/pod-resources/kubelet.sock", user: other},
		{name: "a socket that a kubelet has left", socket: "/var/lib/kubelet/pod-resources/kubelet.sock", user: -1},
		{name: "the port", processes: map[string]string{"7": runs("renamed", "0", "7")}, tcp: fmt.Sprintf(line, 10250, "0A", root, 77), port: 77, want: "renamed, pid 7, listens on port 10250"},
		{name: "the port, of another user", processes: map[string]string{"7": runs("renamed", "0", "7")}, tcp: fmt.Sprintf(line, 10250, "0A", other, 77), port: 77},
		{name: "the port, in a container", processes: map[string]string{"7": runs("metrics-server", "0", "7\t1")}, tcp: fmt.Sprintf(line, 10250, "0A", root, 77), port: 77},
		{name: "a connection to the port", processes: map[string]string{"7": runs("client", "0", "7")}, tcp: fmt.Sprintf(line, 10250, "01", root, 77), port: 77},
		{name: "another port", processes: map[string]string{"7": runs("server", "0", "7")}, tcp: fmt.Sprintf(line, 10251, "0A", root, 77), port: 77},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/tmp", "k") // a socket's path has 107 bytes at most
			require.NoError(t, err)
			t.Cleanup(func() { os.RemoveAll(dir) })
			require.NoError(t, os.Chmod(dir, 0o755))
			h := host{filepath.Join(dir, "proc"), filepath.Join(dir, "root")}
			for pid, status := range c.processes {
				put(t, filepath.Join(h.proc, pid, "status"), status)
			}
			put(t, filepath.Join(h.proc, "7/cmdline"), c.arguments)
			put(t, filepath.Join(h.proc, "1/net/tcp6"), "  sl  local_address remote_address st\n"+c.tcp)
			put(t, filepath.Join(h.proc, "7/fd/.keep"), "")
			require.NoError(t, os.Symlink(fmt.Sprintf("socket:[%d]", c.port), filepath.Join(h.proc, "7/fd/3")))
			if c.socket != "" {
				listener, err := process.ListenAs(filepath.Join(h.root, c.socket), max(c.user, 0))
				require.NoError(t, err)
				t.Cleanup(func() { listener.Close() })
				if c.user < 0 {
					listener.SetUnlinkOnClose(false)
					listener.Close()
				}
			}
			found := h.kubelet("/data/node")
			if found.Found() != (c.want != "") || !strings.Contains(found.String(), c.want) {
				t.Errorf("found %+v, want %q", found, c.want)
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}
