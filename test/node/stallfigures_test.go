package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// TestStallFigures judges nothing: its lines that begin with | show by how much memory.stall separates a node that thrashes
// from one where files are read once, and a pod that thrashes from one beside it. A node of 256 MiB has a pod that holds a part of it, a
// reader, and a worker that reads a file of 12 MiB, a MiB twenty times a second at most.
func TestStallFigures(t *testing.T) {
	machine.Need(t)
	fmt.Println("| the reader | read back | of it the reader | and the worker | all tasks wait | some wait | a task of the reader waits | of the worker |")
	for _, c := range []struct {
		what       string
		held, file int64 // MiB
		times      int
	}{
		{"a file that fits, again and again", 80, 120, 1000000},
		{"a file of 300 MiB once", 80, 300, 1},
		{"a file of 300 MiB once, with 40 MiB left", 200, 300, 1},
		{"a file of 300 MiB twice, with 40 MiB left", 200, 300, 2},
		{"a tenth more than fits, again and again", 138, 120, 1000000},
		{"a quarter more than fits, again and again", 150, 120, 1000000},
		{"twice what fits, again and again", 186, 120, 1000000},
		{"four times what fits, again and again", 216, 120, 1000000},
	}[:campaign.Size(8, 1)] {
		t.Run(c.what, func(t *testing.T) {
			n := harness.NewNode(t, 256*harness.MiB, nodePIDs)
			resident, reader, worker := n.Start("resident", sandbox.Spec{}), n.Start("reader", sandbox.Spec{}), n.Start("worker", sandbox.Spec{})
			file := written(t, c.file*harness.MiB)
			worker.Do("work %s %s", written(t, 12*harness.MiB), filepath.Join(t.TempDir(), "count"))
			if c.times > 2 { // it is in use before room is taken
				resident.Do("hold 80Mi")
				reader.Do("read %s 3", file)
			}
			resident.Do("hold %dMi", c.held)
			before, ofWorker := readStalls(n, reader), readStalls(n, worker)
			if c.times > 2 {
				reader.Send("read %s %d", file, c.times)
				<-time.After(campaign.Size(5*time.Second, time.Second))
			} else {
				reader.Do("read %s %d", file, c.times)
			}
			after, now := readStalls(n, reader), readStalls(n, worker)
			over := after.at.Sub(before.at)
			share := func(d time.Duration) string { return fmt.Sprintf("%.2f%%", 100*d.Seconds()/over.Seconds()) }
			perSecond := func(bytes int64) string {
				return fmt.Sprintf("%.0f pages/s", float64(bytes)/float64(os.Getpagesize())/over.Seconds())
			}
			fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s |\n", c.what, perSecond(after.all-before.all), perSecond(after.pod-before.pod), perSecond(now.pod-ofWorker.pod),
				share(after.stall.Full-before.stall.Full), share(after.stall.Some-before.stall.Some), share(after.ofPod.Some-before.ofPod.Some), share(now.ofPod.Some-ofWorker.ofPod.Some))
			n.Clear(n.Pods().Path())
		})
	}
}

// stallReading is what a node, and a pod of it, have read back, and how long their tasks have waited for memory.
type stallReading struct {
	all, pod     int64
	stall, ofPod stats.Stall
	at           time.Time
}

func readStalls(n *harness.Node, of *harness.Pod) (r stallReading) {
	n.T.Helper()
	var p stats.Pod
	pod, node := n.Open(of.Group), n.Open(n.Group)
	require.NoError(n.T, pod.PodMemory(&p))
	var err1, err2 error
	r.stall, err1 = node.Pressure(cgroup.MemoryStall)
	r.ofPod, err2 = pod.Pressure(cgroup.MemoryStall)
	require.NoError(n.T, errors.Join(err1, err2))
	r.all, r.pod, r.at = n.Memory(n.Group).ReadBack.Or(0), p.ReadBack.Or(0), time.Now()
	return r
}
