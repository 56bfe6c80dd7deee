package kill

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// frail dies of SIGKILL alone.
func frail() *fakeProcess { return &fakeProcess{diesOf: []unix.Signal{unix.SIGKILL}} }

func TestAPreparedPodIsSignalledBeforeAnythingIsOpened(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		only := frail()
		pod := newFakePod(k, only)
		k.Prepare([]Victim{{UID: "a", Target: pod}})
		k.open = func(int) (process, error) { return nil, errors.New("nothing may be opened") }
		pod.listed = -1 << 30
		listedAtSignal := 0
		only.signalled = func() { listedAtSignal = pod.listed }
		start(t, k, Victim{UID: "a", Target: pod})
		if r := <-k.Results(); r.Err != nil || r.Gone.IsZero() || r.Killed.IsZero() {
			t.Errorf("result %+v", r)
		}
		if listedAtSignal != -1<<30 {
			t.Error("the pod was listed before its first signal")
		}
	})
}

func TestWhatWasSignalledIsHeldForSIGKILL(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		only := frail()
		pod := newFakePod(k, only)
		since := start(t, k, Victim{UID: "a", Target: pod, Grace: time.Second})
		k.open = func(int) (process, error) { return nil, errors.New("nothing may be opened") }
		r := wantAfter(t, k, since, time.Second, time.Second)
		if r.Err != nil || r.Killed.Sub(r.Signalled) != time.Second {
			t.Errorf("result %+v", r)
		}
	})
}

func TestPreparedPodsAreKeptUntilTheyLeaveTheList(t *testing.T) {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	stays, leaves := frail(), frail()
	both := newFakePod(k, stays, leaves)
	a, b := &fakePod{processes: map[int]*fakeProcess{stays.pid: stays}}, &fakePod{processes: map[int]*fakeProcess{leaves.pid: leaves}}
	k.open = both.open
	opened := 0
	open := k.open
	k.open = func(pid int) (process, error) { opened++; return open(pid) }
	k.Prepare([]Victim{{UID: "a", Target: a}, {UID: "b", Target: b}})
	k.Prepare([]Victim{{UID: "a", Target: a}})
	if opened != 2 || stays.closed.Load() > 0 || leaves.closed.Load() != 1 {
		t.Errorf("opened %d, closed %d of the group that stays and %d of the other", opened, stays.closed.Load(), leaves.closed.Load())
	}
	delete(a.processes, stays.pid) // it has moved elsewhere
	k.Prepare([]Victim{{UID: "a", Target: a}})
	if stays.closed.Load() != 1 {
		t.Error("a process that has left its pod is held")
	}
	another := &fakePod{processes: map[int]*fakeProcess{}}
	k.Prepare([]Victim{{UID: "a", Target: another}})
	if g := k.ready[another]; g == nil || len(g.ready) > 0 {
		t.Error("what is held is another target's")
	}
}

func TestAPreparedPodWhoseTasksAreAsManyAsThenIsLeftAlone(t *testing.T) {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	pod := newFakePod(k, frail())
	looks := func(tasks stats.Amount) bool {
		before := pod.listed
		k.Prepare([]Victim{{UID: "a", Target: pod, Tasks: tasks}})
		return pod.listed != before
	}
	for i, c := range []struct {
		tasks stats.Amount
		want  bool
	}{{stats.Known(1), true}, {stats.Known(1), false}, {stats.Known(2), true}, {stats.Amount{}, true}, {stats.Amount{}, true}, {stats.Known(2), true}} {
		if got := looks(c.tasks); got != c.want {
			t.Errorf("%d: looks %v, want %v", i, got, c.want)
		}
	}
}

func TestWhatIsHeldOfPodsThatLiveIsBounded(t *testing.T) {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	var many []*fakeProcess
	for range 3 * maxReadyOfEach {
		many = append(many, frail())
	}
	var pods []Victim
	for i := range 2 * maxReady {
		pods = append(pods, Victim{UID: types.UID(fmt.Sprint(i)), Target: newFakePod(k, many...)})
	}
	k.Prepare(pods)
	if len(k.ready) != maxReady || len(k.ready[pods[0].Target].ready) != maxReadyOfEach {
		t.Errorf("%d pods, %d processes of the first", len(k.ready), len(k.ready[pods[0].Target].ready))
	}
	k.stop()
	if len(k.ready) > 0 {
		t.Error("a killer that has stopped holds processes")
	}
	k.Prepare(pods)
	if len(k.ready) > 0 {
		t.Error("a killer that has stopped was prepared")
	}
}

func TestAPodThatIsBeingKilledIsNotPrepared(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		only := frail()
		pod := newFakePod(k, only)
		start(t, k, Victim{UID: "a", Target: pod, Grace: time.Minute})
		k.Prepare([]Victim{{UID: "a", Target: pod}})
		k.mu.Lock()
		if len(k.ready) > 0 {
			t.Error("it was")
		}
		k.mu.Unlock()
		<-k.Results()
	})
}

// boostable is a pod that can be given the processor and frozen.
type boostable struct {
	*fakePod
	err    error
	asked  atomic.Int32
	undone atomic.Int32
	states []string
}

func (h *boostable) BoostCPU() (func(), error) {
	h.asked.Add(1)
	return func() { h.undone.Add(1) }, h.err
}

func (h *boostable) Freeze() error { h.states = append(h.states, "frozen"); return nil }

func (h *boostable) Thaw() error {
	if len(h.states) > 0 && h.states[len(h.states)-1] == "frozen" {
		h.states = append(h.states, "thawed")
	}
	return nil
}

func TestAVictimHasTheProcessorFromSIGKILLUntilItIsGone(t *testing.T) {
	for name, fault := range map[string]error{"all of it": nil, "what could be done": os.ErrPermission} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, k *Killer) {
				only := &fakeProcess{}
				pod := &boostable{fakePod: newFakePod(k, only), err: fault}
				start(t, k, Victim{UID: "a", Target: pod, Grace: time.Second})
				time.Sleep(time.Second / 2)
				if pod.asked.Load() != 0 {
					t.Error("it had the processor within its grace")
				}
				time.Sleep(time.Second)
				if pod.asked.Load() != 1 || pod.undone.Load() != 0 {
					t.Errorf("boosted %d times, undone %d times while it dies", pod.asked.Load(), pod.undone.Load())
				}
				only.endAfter(time.Second)
				if r := <-k.Results(); r.Err != nil || pod.asked.Load() != 1 {
					t.Errorf("%+v, boosted %d times", r, pod.asked.Load())
				}
			})
		})
	}
}

func TestAVictimThatDoesNotDieLosesTheProcessorAgain(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		pod := &boostable{fakePod: newFakePod(k, &fakeProcess{})}
		start(t, k, Victim{UID: "a", Target: pod})
		if r := <-k.Results(); !errors.Is(r.Err, ErrPopulated) || pod.undone.Load() != 1 {
			t.Errorf("%+v, undone %d times", r, pod.undone.Load())
		}
	})
}

func TestAPodThatForksFasterThanItIsKilledIsFrozen(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		pod := &boostable{fakePod: newFakePod(k)}
		child := 0
		frozen := false
		var fork func() *fakeProcess
		fork = func() *fakeProcess { // each has forked another before it dies
			p := frail()
			child++
			p.pod, p.pid, p.ended = pod.fakePod, child, make(chan struct{})
			p.signalled = func() {
				if len(pod.states) == 0 {
					next := fork()
					pod.processes[next.pid] = next
				} else {
					frozen = true
				}
			}
			return p
		}
		first := fork()
		pod.processes[first.pid] = first
		start(t, k, Victim{UID: "a", Target: pod})
		if r := <-k.Results(); r.Err != nil || !frozen || !slices.Equal(pod.states, []string{"frozen", "thawed"}) {
			t.Errorf("%+v, states %v", r, pod.states)
		}
	})
}

// rule: M.166
func TestAPreparedPodHasEndedWhenItsProcessesHaveAndThereAreNoOthers(t *testing.T) {
	k := New(Config{}, slog.New(slog.DiscardHandler))
	one, other, late := frail(), frail(), frail()
	pod := newFakePod(k, one, other, late)
	delete(pod.processes, late.pid)
	if k.Ended(pod) {
		t.Error("a pod that is not prepared has ended")
	}
	k.Prepare([]Victim{{UID: "a", Target: pod}})
	one.end()
	if k.Ended(pod) {
		t.Error("a pod of which a process runs has ended")
	}
	other.end()
	pod.processes[late.pid] = late // since it was prepared
	if k.Ended(pod) {
		t.Error("a pod with another process has ended")
	}
	if late.end(); !k.Ended(pod) {
		t.Error("a pod without a process has not ended")
	}
}

func TestNothingIsAllocatedToKnowThatAPodRuns(t *testing.T) {
	pod := single(os.Getpid())
	k := New(Config{}, slog.New(slog.DiscardHandler))
	self, err := openPidfd(os.Getpid())
	if err != nil {
		t.Skip("skipped: needs pidfd_open, Linux 5.3:", err)
	}
	defer self.close()
	g := newPidfdSet(&pod, k.open)
	g.ready[os.Getpid()] = self
	k.ready[&pod] = g
	if n := testing.AllocsPerRun(10, func() {
		if k.Ended(&pod) {
			t.Error("this process has ended")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
