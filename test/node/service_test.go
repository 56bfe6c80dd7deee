package node_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// TestServiceIsReadyThoughASignalCannotBeMeasured has a threshold of the pods' cgroup, which
// does not exist. A unit of Type=notify that is never ready is restarted for ever.
func TestServiceIsReadyThoughASignalCannotBeMeasured(t *testing.T) {
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	n.Clear(n.Pods().Path())
	socket := filepath.Join(n.Dir, "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	messages := make(chan string)
	go func() {
		defer close(messages)
		for buf := make([]byte, 4096); ; {
			size, err := manager.Read(buf)
			if err != nil {
				return
			}
			select {
			case messages <- string(buf[:size]):
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { manager.Close() })
	cmd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.EvictionHard("allocatableMemory.available<1Mi"))
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+socket)
	n.Protect(cmd, nil)
	harness.Await(t, "READY=1", func() bool {
		select {
		case m := <-messages:
			return strings.HasPrefix(m, "READY=1\nSTATUS=no threshold is measured; not measured: allocatableMemory.available")
		default:
			return false
		}
	})
}
