package kill

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// The test binary plays the processes of a pod, too: what it is told in its
// environment, it does instead of running tests.
const roleVariable = "EVICTD_KILL_TEST_ROLE"

func TestMain(m *testing.M) {
	role, argument, _ := strings.Cut(os.Getenv(roleVariable), "=")
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	if role == "hold" { // MiB; not of Go's heap, of which its garbage collector would take back what is not used again
		mib, _ := strconv.Atoi(argument)
		if _, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	// A process that waits for a signal is alive until it comes; in one that waits for
	// nothing the runtime finds a deadlock, and it ends.
	term := make(chan os.Signal, 1)
	signal.Notify(term, unix.SIGTERM)
	fmt.Println("ready")
	<-term
	if role == "leave-orphan" {
		if err := exec.Command("sleep", "600").Start(); err != nil {
			os.Exit(1)
		}
	}
}

// v1Group is a bounded pod of the test's own in cgroup v1: memory, pids and
// freezer.
type v1Group struct {
	dirs map[string]string
	cpu  string // the directory of one that has a weight
}

const cgroups = "/sys/fs/cgroup"

func newV1Group(t testing.TB) *v1Group {
	t.Helper()
	return newV1GroupOf(t, "512M")
}

func newV1GroupOf(t testing.TB, memory string) *v1Group {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to create cgroups")
	}
	g := &v1Group{dirs: map[string]string{}}
	for controller, bound := range map[string][2]string{
		"memory":  {"memory.limit_in_bytes", memory},
		"pids":    {"pids.max", "200"},
		"freezer": {},
	} {
		dir, err := os.MkdirTemp(filepath.Join(cgroups, controller), "evictd-kill-test-")
		if err != nil {
			t.Skipf("skipped: needs cgroup v1 with its %s controller: %v", controller, err)
		}
		t.Cleanup(func() { g.remove(t, dir) })
		g.dirs[controller] = dir
		if bound[0] == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, bound[0]), []byte(bound[1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// remove kills what a failed test left; rmdir is EBUSY for a moment after that.
func (g *v1Group) remove(t testing.TB, dir string) {
	g.Thaw()
	wait.Until(t, "cgroup "+dir+" to be removed", func() bool {
		pids, _ := g.AppendProcesses(nil)
		for _, pid := range pids {
			unix.Kill(pid, unix.SIGKILL)
		}
		return os.Remove(dir) == nil
	})
}

func (g *v1Group) AppendProcesses(pids []int) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(g.dirs["memory"], "cgroup.procs"))
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, err
}

func (g *v1Group) Kill() error { return fmt.Errorf("cgroup v1: %w", syscall.ENOTSUP) }

func (g *v1Group) Populated() (bool, error) {
	pids, err := g.AppendProcesses(nil)
	return len(pids) > 0, err
}

func (g *v1Group) Thaw() error { return g.freezer("THAWED") }

func (g *v1Group) freezer(state string) error {
	if g.dirs["freezer"] == "" {
		return errors.ErrUnsupported
	}
	return os.WriteFile(filepath.Join(g.dirs["freezer"], "freezer.state"), []byte(state), 0o644)
}

func (g *v1Group) usage() stats.Amount {
	text, err := os.ReadFile(filepath.Join(g.dirs["memory"], "memory.usage_in_bytes"))
	if err != nil {
		return stats.Amount{}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return stats.Amount{}
	}
	return stats.Known(n)
}

// start runs a shell script inside the group and waits for its first line, which
// it must write when it is ready.
func (g *v1Group) start(t testing.TB, script string) int {
	t.Helper()
	var join strings.Builder
	for _, dir := range g.dirs {
		fmt.Fprintf(&join, "echo $$ > %s/cgroup.procs; ", dir)
	}
	return startReady(t, exec.Command("/bin/sh", "-c", join.String()+script)).Process.Pid
}

// startRole runs the test binary in a role inside the group.
func (g *v1Group) startRole(t testing.TB, role string) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	g.start(t, fmt.Sprintf("export %s=%s; exec %q", roleVariable, role, program))
}

// startReady starts a command and waits for its first line. When the test ends
// it is killed, and reaped in any case.
func startReady(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && err != io.EOF || line != "ready\n" {
		t.Fatalf("process said %q, want ready: %v", line, err)
	}
	return cmd
}

// startKiller runs a Killer for the test, and checks that no goroutine of it is
// left when its Run has returned.
func startKiller(t testing.TB) *Killer {
	t.Helper()
	k := New(Config{}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != context.Canceled {
			t.Errorf("Run returned %v, want the context's error", err)
		}
		if n := goroutinesOf("(*termination)", "(*pidfd)", "(*Killer).releaseAll", "(*Killer).Run"); n > 0 {
			t.Errorf("%d goroutines outlived Run", n)
		}
	})
	return k
}

func goroutinesOf(functions ...string) int {
	buf := make([]byte, 1<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	n := 0
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		for _, function := range functions {
			if strings.Contains(stack, "kill."+function) && !strings.Contains(stack, "kill.goroutinesOf") {
				n++
			}
		}
	}
	return n
}

func mustKill(t testing.TB, k *Killer, v Victim) Result {
	t.Helper()
	if err := k.Kill(v); err != nil {
		t.Fatal(err)
	}
	r := <-k.Results()
	if r.Err != nil || r.Gone.IsZero() || r.UID != v.UID {
		t.Fatalf("result %+v, want %s gone", r, v.UID)
	}
	if populated, err := v.Target.Populated(); err == nil && populated {
		t.Fatalf("%s is said to be gone and is not", v.UID)
	}
	return r
}

func TestAPodThatHeedsSIGTERMIsGoneBeforeItsGraceEnds(t *testing.T) {
	g := newV1Group(t)
	g.start(t, `trap 'exit 0' TERM; (echo ready; exec sleep 600) & wait`)
	r := mustKill(t, startKiller(t), Victim{UID: "a", Grace: time.Hour, Target: g})
	if r.Signalled.IsZero() || r.Gone.Before(r.Signalled) {
		t.Errorf("signalled %v, gone %v", r.Signalled, r.Gone)
	}
}

// rule: 5.24
func TestAPodThatIgnoresSIGTERMIsKilledWhenItsGraceEnds(t *testing.T) {
	g := newV1Group(t)
	g.start(t, `trap '' TERM; sleep 600 & echo ready; wait`)
	const grace = 300 * time.Millisecond
	began := time.Now()
	r := mustKill(t, startKiller(t), Victim{UID: "a", Grace: grace, Target: g})
	if took := r.Gone.Sub(began); took < grace {
		t.Errorf("gone after %v, before its grace of %v ended", took, grace)
	}
}

func TestProcessesForkedWhileDyingDieToo(t *testing.T) {
	g := newV1Group(t)
	// Every process forks another and ignores SIGTERM, up to the limit of the
	// group; forks that fail are tried again.
	g.start(t, `trap '' TERM; storm() { while :; do (storm) 2>/dev/null & sleep 0.01; done; }; storm 2>/dev/null & echo ready; storm 2>/dev/null`)
	mustKill(t, startKiller(t), Victim{UID: "a", Grace: 200 * time.Millisecond, Target: g})
}

func TestOrphansThatOutliveTheirParentsAreSignalledThemselves(t *testing.T) {
	g := newV1Group(t)
	// Not a shell: its child would lose a SIGTERM that comes before it has
	// taken the shell's trap off.
	g.startRole(t, "leave-orphan")
	mustKill(t, startKiller(t), Victim{UID: "a", Grace: time.Hour, Target: g})
}

func TestAParentThatDoesNotReapBlocksNothing(t *testing.T) {
	g := newV1Group(t)
	// The zombies' parent is this test, which waits for nobody before its end.
	g.start(t, `for i in 1 2 3; do sleep 600 & done; echo ready; exec sleep 600`)
	r := mustKill(t, startKiller(t), Victim{UID: "a", Target: g})
	if r.Signalled.IsZero() {
		t.Error("nothing was signalled")
	}
}

func TestAFrozenPodIsThawedToDie(t *testing.T) {
	for name, grace := range map[string]time.Duration{"by SIGKILL": 0, "by SIGTERM": time.Hour} {
		t.Run(name, func(t *testing.T) {
			g := newV1Group(t)
			g.start(t, `echo ready; exec sleep 600`)
			if err := g.freezer("FROZEN"); err != nil {
				t.Fatal(err)
			}
			mustKill(t, startKiller(t), Victim{UID: "a", Grace: grace, Target: g})
		})
	}
}

func TestAnEmptyOrRemovedPodIsGoneUnsignalled(t *testing.T) {
	k := startKiller(t)
	removed := &v1Group{dirs: map[string]string{"memory": filepath.Join(t.TempDir(), "removed")}}
	for name, target := range map[string]Target{"empty": newV1Group(t), "removed": withoutThaw{removed}} {
		if r := mustKill(t, k, Victim{UID: "a", Grace: time.Hour, Target: target}); !r.Signalled.IsZero() {
			t.Errorf("%s pod was signalled at %v", name, r.Signalled)
		}
	}
}

type withoutThaw struct{ Target }

func TestTheMemoryFreedIsReported(t *testing.T) {
	g := newV1Group(t)
	g.startRole(t, "hold=100")
	r := mustKill(t, startKiller(t), Victim{UID: "a", Target: g, Usage: g.usage})
	if freed, known := r.Freed.Get(); !known || freed < 95<<20 {
		t.Errorf("freed %v bytes (known: %v) of 100 MiB", freed, known)
	}
}

func TestASecondKillBringsSIGKILLForward(t *testing.T) {
	g := newV1Group(t)
	g.start(t, `trap '' TERM; echo ready; while :; do sleep 1; done`)
	k := startKiller(t)
	if err := k.Kill(Victim{UID: "a", Grace: time.Hour, Target: g}); err != nil {
		t.Fatal(err)
	}
	mustKill(t, k, Victim{UID: "a", Target: g})
}

func TestAProcessThatIsNotOurs(t *testing.T) {
	g := newV1Group(t)
	pid := g.start(t, `echo ready; exec sleep 600`)
	k := startKiller(t)
	// It is listed once, then has left: its id belongs to somebody else now.
	left := &scripted{lists: [][]int{{pid}, {}}, populated: true}
	if err := k.Kill(Victim{UID: "left", Grace: 50 * time.Millisecond, Target: left}); err != nil {
		t.Fatal(err)
	}
	// A pod that we are in ourselves would take us along.
	own := &scripted{lists: [][]int{{pid, os.Getpid()}}, populated: true}
	if err := k.Kill(Victim{UID: "own", Target: own}); err != nil {
		t.Fatal(err)
	}
	if r := <-k.Results(); r.UID != "own" || r.Err == nil || !r.Signalled.IsZero() {
		t.Errorf("result %+v, want a refusal to kill ourselves", r)
	}
	if err := unix.Kill(pid, 0); err != nil || own.killed() > 0 {
		t.Errorf("process that is not the pod's: %v; killed at once: %d times", err, own.killed())
	}
	if pids, _ := g.AppendProcesses(nil); len(pids) != 1 {
		t.Errorf("processes %v, want the one that is not the pod's", pids)
	}
}

func TestAProcessThatEndsBetweenListingAndSignalIsNoFault(t *testing.T) {
	cmd := startReady(t, exec.Command("/bin/sh", "-c", "echo ready"))
	cmd.Wait()
	process, err := openPidfd(cmd.Process.Pid)
	if err == nil {
		process.close()
		t.Skip("skipped: needs a process id that is not in use again at once")
	}
	target := &scripted{lists: [][]int{{cmd.Process.Pid}}}
	if r := mustKill(t, startKiller(t), Victim{UID: "a", Grace: time.Hour, Target: target}); !r.Signalled.IsZero() {
		t.Errorf("result %+v, want nobody signalled", r)
	}
}

func TestAPidfdOutlivesTheReuseOfItsID(t *testing.T) {
	cmd := startReady(t, exec.Command("/bin/sh", "-c", "echo ready; exec sleep 600"))
	held, err := openPidfd(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer held.close()
	if held.exited() {
		t.Error("a running process has exited")
	}
	cmd.Process.Kill()
	<-held.gone() // as a zombie, before anybody reaps it
	if !held.exited() {
		t.Error("a zombie has not exited")
	}
	cmd.Wait()
	if err := held.signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a process that was reaped: %v, want %v", err, os.ErrProcessDone)
	}
}
