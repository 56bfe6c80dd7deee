package node_test

import (
	"bytes"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// contentionTaint is the taint of a node that thrashes, in every mode.
const contentionTaint = "evictd.io/memory-contention"

// thrashing is a node of 256 MiB in the machine, with a pod that holds 80 MiB, and one that reads a file of 120 MiB again and
// again, all of which is in its page cache. thrash has the first one hold so much that half of the file has no room:
// what the second reads back, it had just before, and memory is available all the time.
func thrashing(t *testing.T) (n *harness.Node, resident, reader *harness.Pod, thrash func()) {
	t.Helper()
	machine.Need(t)
	machine.Systemctl(t, "stop", machine.Service)
	n = harness.NewNode(t, 256*harness.MiB, nodePIDs)
	highFile(n) // skips on cgroup v1
	resident = n.Start("resident", sandbox.Spec{})
	resident.Do("hold 80Mi")
	reader = n.Start("reader", sandbox.Spec{Priority: 10})
	reader.Send("read %s 1000000", written(t, 120*harness.MiB))
	harness.Await(t, "the file to be in the active page cache", func() bool {
		active, err := strconv.ParseInt(stat(reader, "active_file"), 10, 64)
		return err == nil && active > 100*harness.MiB
	})
	return n, resident, reader, func() { resident.Do("hold 170Mi") }
}

// written makes a file of a size on a disk, without holes and not cached.
func written(t *testing.T, size int64) (file string) {
	t.Helper()
	file = require.FileOnDisk(t, 0)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	for range size / harness.MiB {
		_, err := f.Write(bytes.Repeat([]byte{1}, harness.MiB))
		require.NoError(t, err)
	}
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)) // else its cache is that of this process's cgroup
	return file
}

// protectFromStalls starts an evictd with a threshold of memory.stall.
func protectFromStalls(t *testing.T, n *harness.Node, pods ...*harness.Pod) *harness.Evictd {
	t.Helper()
	d := n.Evictd(sandbox.EvictionHard("memory.available<16Mi,memory.stall>5%"), noTransition,
		sandbox.Config(configFile(t, "memoryModel: available\nmemoryStallWindow: 2s")))
	d.AwaitPods(eviction.MemoryAvailable.String(), pods...)
	return d
}

// TestMachineRelievesANodeThatThrashes has a pod read a file that does not fit into what is left of the node, while
// memory is available. The pod that reads is evicted, and not the one of lower priority that uses more.
//
// rule: M.157
// rule: M.158
// rule: M.161
func TestMachineRelievesANodeThatThrashes(t *testing.T) {
	n, resident, reader, thrash := thrashing(t)
	d := protectFromStalls(t, n, resident, reader)
	thrash()
	if e := d.AwaitGone(reader); e.Signal != eviction.MemoryStall.String() {
		t.Errorf("evicted for %s", e.Signal)
	}
	d.AwaitCondition(eviction.MemoryContention.Type(), contentionTaint, false)
	d.MustHaveEvicted(reader)
	harness.MustRun(t, resident)
}

// TestMachineLeavesAPodAloneThatThrashesAtItsOwnLimit has the same pod read with half of the memory as a limit of its
// own: its tasks wait as long, and the node has memory that nothing uses.
//
// rule: M.163
func TestMachineLeavesAPodAloneThatThrashesAtItsOwnLimit(t *testing.T) {
	n, resident, reader, _ := thrashing(t)
	d := protectFromStalls(t, n, resident, reader)
	limited := n.Open(reader.Group)
	require.NoError(t, limited.SetMemoryLimit(stats.Known(64<<20)))
	harness.Await(t, "the pod to wait for memory", func() bool {
		stall, err := limited.Pressure(cgroup.MemoryStall)
		return err == nil && stall.Full > time.Second
	})
	d.MustHaveEvicted()
	harness.MustRun(t, resident, reader)
}
