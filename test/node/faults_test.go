package node_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// neverAnswers is a socket that takes connections and never says anything.
func neverAnswers(n *harness.Node, name string) (at string) {
	n.T.Helper()
	at = filepath.Join(n.Dir, name)
	listener, err := net.Listen("unix", at)
	if err == nil {
		err = os.Chmod(at, 0o666)
	}
	require.NoError(n.T, err)
	n.T.Cleanup(func() { listener.Close() })
	return at
}

// fullPipe is a pipe that takes no more bytes until the test reads it.
func fullPipe(t testing.TB) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = errors.Join(read.Close(), write.Close()) })
	end, err := write.SyscallConn()
	if err == nil {
		err = end.Write(func(fd uintptr) bool {
			page := bytes.Repeat([]byte{'\n'}, os.Getpagesize())
			for full := error(nil); full == nil; {
				_, full = unix.Write(int(fd), page)
			}
			return true
		})
	}
	require.NoError(t, err)
	return read, write
}

// fillUp writes to a disk until it takes nothing any more, and returns what makes
// room again.
func fillUp(t testing.TB, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "filler")
	f, err := os.Create(name)
	require.NoError(t, err)
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	require.NoError(t, f.Sync())
	return func() { _ = os.Remove(name) }
}

// freeze blocks writes to a disk until it is thawed.
func freeze(t testing.TB, disk string) (thaw func()) {
	t.Helper()
	if out, err := exec.Command("fsfreeze", "--freeze", disk).CombinedOutput(); err != nil {
		t.Skipf("skipped: a disk cannot be frozen: %v: %s", err, out)
	}
	thaw = func() { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() }
	t.Cleanup(thaw)
	return thaw
}

// TestWithEverythingAroundItFailingEvictdEvicts has the API server and the
// container runtime take connections and never answer, the log be a pipe that is full,
// and the disk of --state-dir be full or hang.
func TestWithEverythingAroundItFailingEvictdEvicts(t *testing.T) {
	t.Parallel()
	failAround(t, nodeMemory, "memory.available<64Mi", func(hog *harness.Pod) { press(hog, 32) })
}

// TestCampaignWithEverythingAroundItFailingEvictdKillsInTime does so with hogs that
// evictd has to be faster than.
func TestCampaignWithEverythingAroundItFailingEvictdKillsInTime(t *testing.T) {
	campaign.Only(t)
	failAround(t, bombNode, "memory.available<100Mi", func(hog *harness.Pod) { hog.Send("leak 1000Mi 768Mi") })
}

func failAround(t *testing.T, memory int64, hard string, grow func(hog *harness.Pod)) {
	for name, c := range map[string]struct {
		spoil  func(t testing.TB, disk string) (mend func())
		crash  bool // and start again; a process that hangs in a write cannot be killed
		before bool // it is so when evictd starts
	}{"the disk full": {spoil: fillUp, crash: true}, "the disk hanging": {spoil: freeze, before: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, memory, nodePIDs)
			disk := mountDisk(n)
			bystander := n.Start("bystander", sandbox.Spec{Request: "128Mi"})
			bystander.Do("hold 64Mi")
			log, stderr := fullPipe(t)
			api, cri := neverAnswers(n, "api.sock"), neverAnswers(n, "cri.sock")
			protect := func() *exec.Cmd {
				evictd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.StateDir(disk), sandbox.Mode("native"),
					sandbox.Server("unix:"+api), sandbox.CRIEndpoint("unix:"+cri), sandbox.EvictionHard(hard))
				evictd.Stderr = stderr
				return evictd
			}
			var mend func()
			if c.before {
				mend = c.spoil(t, disk)
			}
			d := n.Protect(protect(), nil)
			d.Await("the status to say that the runtime does not answer", func(s *nodestatus.Status) bool {
				r := s.Runtime
				return r != nil && !r.Connected && r.Error != "" && !strings.Contains(r.Error, "no socket")
			})
			if !c.before {
				mend = c.spoil(t, disk)
			}
			var hogs []*harness.Pod
			for i := range 3 {
				if i == 2 && c.crash {
					d.Kill()
					if d = n.Protect(protect(), nil); d.Status().API.Connected {
						t.Error("the API server has answered")
					}
				}
				hog := n.Start(fmt.Sprintf("hog-%d", i), sandbox.Spec{})
				d.AwaitPods(memorySignal, hog)
				grow(hog)
				hog.AwaitEnd()
				if n.OOMKills(hog.Container()) > 0 {
					t.Errorf("the kernel ended hog %d", i)
				}
				hogs = append(hogs, hog)
			}
			d.Await("the last end to be seen", func(s *nodestatus.Status) bool {
				return len(s.Evictions) > 0 && !s.Evictions[len(s.Evictions)-1].Gone.IsZero()
			})
			harness.MustRun(t, bystander)

			mend()
			var read wait.Log
			end := make(chan struct{})
			go func() {
				defer close(end)
				_, _ = io.Copy(&read, log)
			}()
			harness.Await(t, "the last hog to be logged", func() bool { return strings.Contains(read.String(), "msg=evicted pod=default/"+hogs[2].Name) })
			d.Stop()
			_ = stderr.Close()
			<-end
		})
	}
}

// rule: M.51
func TestAGraceDoesNotCountTimeInWhichEvictdWasStopped(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	greedy := n.Start("greedy", sandbox.Spec{})
	const grace = 8 * time.Second // far longer than it takes to stop evictd
	d := n.Evictd(soft(grace.String())...)
	d.AwaitPods(memorySignal, greedy)
	greedy.Send("hold 150Mi")
	d.Await("the soft threshold to be met", softMet)
	d.Signal(unix.SIGSTOP)
	stat := fmt.Sprintf("/proc/%d/stat", d.PID())
	harness.Await(t, "evictd to be stopped", func() bool {
		_, state, _ := strings.Cut(content(t, stat), ") ")
		return strings.HasPrefix(state, "T")
	})
	stopped := time.Now()
	harness.Await(t, "more time than the grace period to pass", func() bool { return time.Since(stopped) > grace+grace/2 })
	begun := time.Now()
	d.Signal(unix.SIGCONT)
	e := d.AwaitGone(greedy)
	if e.Decided.Before(stopped) { // the test was late, and stopped an evictd that had decided
		begun = e.Crossed.Time
	}
	if ran := e.Decided.Sub(begun); ran < grace {
		t.Errorf("decided %v after the begin of the grace period of %v", ran, grace)
	}
	d.MustHaveEvicted(greedy)
}
