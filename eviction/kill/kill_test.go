package kill

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// The test binary is the program of a pod's processes, too: with a role in its
// environment it does not run tests.
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

// startReady starts a command and waits for its first line. When the test ends
// it is killed, and reaped in any case.
func startReady(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	awaitReady(t, startCommand(t, cmd))
	return cmd
}

// startCommand starts a command, whose standard output it returns.
func startCommand(t testing.TB, cmd *exec.Cmd) io.Reader {
	t.Helper()
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return out
}

func awaitReady(t testing.TB, out io.Reader) {
	t.Helper()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil && err != io.EOF || line != "ready\n" {
		t.Fatalf("process said %q, want ready: %v", line, err)
	}
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
	require.NoError(t, k.Kill(v))
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
	p := newPod(t)
	p.start(t, `trap 'exit 0' TERM; (echo ready; exec sleep 600) & wait`)
	r := mustKill(t, startKiller(t), Victim{UID: "a", Grace: time.Hour, Target: p})
	if r.Signalled.IsZero() || r.Gone.Before(r.Signalled) {
		t.Errorf("signalled %v, gone %v", r.Signalled, r.Gone)
	}
}

// rule: 5.24
func TestAPodThatIgnoresSIGTERMIsKilledWhenItsGraceEnds(t *testing.T) {
	eachWay(t, func(t *testing.T, p *pod) {
		p.start(t, `trap '' TERM; sleep 600 & echo ready; wait`)
		const grace = 300 * time.Millisecond
		began := time.Now()
		r := mustKill(t, startKiller(t), Victim{UID: "a", Grace: grace, Target: p})
		if took := r.Gone.Sub(began); took < grace {
			t.Errorf("gone after %v, before its grace of %v ended", took, grace)
		}
	})
}

func TestProcessesForkedWhileDyingDieToo(t *testing.T) {
	eachWay(t, func(t *testing.T, p *pod) {
		// Every process forks another and ignores SIGTERM, up to the limit of the
		// group; forks that fail are tried again.
		p.start(t, `trap '' TERM; storm() { while :; do (storm) 2>/dev/null & sleep 0.01; done; }; storm 2>/dev/null & echo ready; storm 2>/dev/null`)
		mustKill(t, startKiller(t), Victim{UID: "a", Grace: 200 * time.Millisecond, Target: p})
	})
}

func TestOrphansThatOutliveTheirParentsAreSignalledThemselves(t *testing.T) {
	p := newPod(t)
	// Not a shell: its child would lose a SIGTERM that comes before it has
	// taken the shell's trap off.
	p.startRole(t, "leave-orphan")
	mustKill(t, startKiller(t), Victim{UID: "a", Grace: time.Hour, Target: p})
}

func TestAParentThatDoesNotReapBlocksNothing(t *testing.T) {
	eachWay(t, func(t *testing.T, p *pod) {
		// The zombies' parent is this test, which reaps no process before its end.
		p.start(t, `for i in 1 2 3; do sleep 600 & done; echo ready; exec sleep 600`)
		r := mustKill(t, startKiller(t), Victim{UID: "a", Target: p})
		if r.Signalled.IsZero() {
			t.Error("nothing was signalled")
		}
	})
}

func TestAFrozenPodIsThawedToDie(t *testing.T) {
	for name, grace := range map[string]time.Duration{"by SIGKILL": 0, "by SIGTERM": time.Hour} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, p *pod) {
				p.start(t, `echo ready; exec sleep 600`)
				p.freeze(t)
				mustKill(t, startKiller(t), Victim{UID: "a", Grace: grace, Target: p})
			})
		})
	}
}

func TestAnEmptyOrRemovedPodIsGoneUnsignalled(t *testing.T) {
	k := startKiller(t)
	removed := newPod(t)
	require.NoError(t, removed.cgroups.Delete(removed.Path()))
	for name, target := range map[string]Target{"empty": newPod(t), "removed": removed} {
		if r := mustKill(t, k, Victim{UID: "a", Grace: time.Hour, Target: target}); !r.Signalled.IsZero() {
			t.Errorf("%s pod was signalled at %v", name, r.Signalled)
		}
	}
}

func TestTheMemoryFreedIsReported(t *testing.T) {
	eachWay(t, func(t *testing.T, p *pod) {
		p.startRole(t, "hold=100")
		r := mustKill(t, startKiller(t), Victim{UID: "a", Target: p, Usage: p.usage})
		if freed, known := r.Freed.Get(); !known || freed < 95<<20 {
			t.Errorf("freed %v bytes (known: %v) of 100 MiB", freed, known)
		}
	})
}

func TestASecondKillBringsSIGKILLForward(t *testing.T) {
	p := newPod(t)
	p.start(t, `trap '' TERM; echo ready; while :; do sleep 1; done`)
	k := startKiller(t)
	require.NoError(t, k.Kill(Victim{UID: "a", Grace: time.Hour, Target: p}))
	mustKill(t, k, Victim{UID: "a", Target: p})
}

// TestAPodIsKilledAlthoughTheKillOfItsContainerContinues has the container's processes not be listed.
//
// rule: M.135
func TestAPodIsKilledAlthoughTheKillOfItsContainerContinues(t *testing.T) {
	p := newPod(t)
	p.start(t, `echo ready; exec sleep 600`)
	k := startKiller(t)
	container := &scripted{populated: true, listError: unix.EIO, killError: unix.EIO}
	require.NoError(t, k.Kill(Victim{UID: "a", Container: "c", Target: container}))
	if r := <-k.Results(); r.Container != "c" || !errors.Is(r.Err, ErrNotSignalled) {
		t.Fatalf("result %+v, want container c not to be signalled", r)
	}
	if r := mustKill(t, k, Victim{UID: "a", Target: p}); r.Container != "" {
		t.Errorf("result %+v, want that of the pod", r)
	}
	container.empty()
	if r := <-k.Results(); r.Container != "c" || r.Gone.IsZero() {
		t.Errorf("result %+v, want the end of container c", r)
	}
}

func TestAProcessThatIsNotOurs(t *testing.T) {
	p := newPod(t)
	pid := p.start(t, `echo ready; exec sleep 600`)
	k := startKiller(t)
	// It is listed once, then has left: its id belongs to another process now.
	left := &scripted{lists: [][]int{{pid}, {}}, populated: true}
	require.NoError(t, k.Kill(Victim{UID: "left", Grace: 50 * time.Millisecond, Target: left}))
	// A pod that we are in ourselves would take us along.
	own := &scripted{lists: [][]int{{pid, os.Getpid()}}, populated: true}
	require.NoError(t, k.Kill(Victim{UID: "own", Target: own}))
	if r := <-k.Results(); r.UID != "own" || r.Err == nil || !r.Signalled.IsZero() {
		t.Errorf("result %+v, want a refusal to kill ourselves", r)
	}
	if err := unix.Kill(pid, 0); err != nil || own.killed() > 0 {
		t.Errorf("process that is not the pod's: %v; killed at once: %d times", err, own.killed())
	}
	if pids, _ := p.AppendProcesses(nil); len(pids) != 1 {
		t.Errorf("processes %v, want the process outside the pod", pids)
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
		t.Errorf("result %+v, want no process signalled", r)
	}
}

func TestAPidfdOutlivesTheReuseOfItsID(t *testing.T) {
	cmd := startReady(t, exec.Command("/bin/sh", "-c", "echo ready; exec sleep 600"))
	held, err := openPidfd(cmd.Process.Pid)
	require.NoError(t, err)
	defer held.close()
	if held.exited() {
		t.Error("a running process has exited")
	}
	cmd.Process.Kill()
	<-held.gone() // as a zombie, before it is reaped
	if !held.exited() {
		t.Error("a zombie has not exited")
	}
	cmd.Wait()
	if err := held.signal(unix.SIGKILL); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("signal to a process that was reaped: %v, want %v", err, os.ErrProcessDone)
	}
}
