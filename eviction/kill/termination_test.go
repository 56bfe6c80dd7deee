package kill

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

func TestAProcessThatShutsDownInTimeGetsNoSIGKILL(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		slow := &fakeProcess{}
		pod := newFakePod(k, slow, &fakeProcess{diesOf: []unix.Signal{unix.SIGTERM}})
		since := start(t, k, Victim{UID: "a", Grace: 30 * time.Second, Target: pod})
		slow.endAfter(20 * time.Second)
		r := wantAfter(t, k, since, 20*time.Second, 20*time.Second)
		if r.Err != nil || !r.Gone.Equal(since.Add(20*time.Second)) || !r.Signalled.Equal(since) {
			t.Errorf("result %+v", r)
		}
		if !slices.Equal(slow.got, []unix.Signal{unix.SIGTERM}) {
			t.Errorf("signals %v, want SIGTERM once", slow.got)
		}
	})
}

func TestGraceEndsInSIGKILLAndZeroGraceSkipsSIGTERM(t *testing.T) {
	for grace, want := range map[time.Duration][]unix.Signal{
		30 * time.Second: {unix.SIGTERM, unix.SIGKILL},
		0:                {unix.SIGKILL},
		-time.Second:     {unix.SIGKILL},
	} {
		t.Run(grace.String(), func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, k *Killer) {
				stubborn := &fakeProcess{diesOf: []unix.Signal{unix.SIGKILL}}
				pod := newFakePod(k, stubborn)
				since := start(t, k, Victim{UID: "a", Grace: grace, Target: pod})
				wantAfter(t, k, since, max(0, grace), max(0, grace))
				if !slices.Equal(stubborn.got, want) {
					t.Errorf("signals %v, want %v", stubborn.got, want)
				}
			})
		})
	}
}

// rule: 5.20
func TestGraceOnlyDecreases(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		pod := newFakePod(k, &fakeProcess{diesOf: []unix.Signal{unix.SIGKILL}})
		since := start(t, k, Victim{UID: "a", Grace: 30 * time.Second, Target: pod})
		time.Sleep(5 * time.Second)
		start(t, k, Victim{UID: "a", Grace: time.Hour})
		start(t, k, Victim{UID: "a", Grace: 10 * time.Second})
		k.Hasten("a", 20*time.Second)
		k.Hasten("a", 8*time.Second)
		k.Hasten("another", 0)
		wantAfter(t, k, since, 13*time.Second, 13*time.Second)
	})
}

func TestAPodThatNeverEmptiesFailsWhenOverdueAndIsReportedGoneLate(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		stuck := &fakeProcess{}
		pod := newFakePod(k, stuck)
		usage := []stats.Amount{stats.Known(100), stats.Known(30)}
		since := start(t, k, Victim{UID: "a", Name: "default/a", Grace: 5 * time.Second, Target: pod,
			Usage: func() stats.Amount { now := usage[0]; usage = usage[1:]; return now }})
		for _, killed := range []bool{false, true} {
			if time.Sleep(4 * time.Second); k.Killed("a") != killed {
				t.Errorf("after %v SIGKILL was sent: %v", time.Since(since), !killed)
			}
		}
		r := wantAfter(t, k, since, 15*time.Second, 15*time.Second+longestPause)
		if !errors.Is(r.Err, ErrPopulated) || !r.Gone.IsZero() || r.Signalled.IsZero() || r.Freed.IsKnown() {
			t.Errorf("result %+v, want %v", r, ErrPopulated)
		}
		if !strings.Contains(r.Err.Error(), "default/a") {
			t.Errorf("error %q does not name the pod", r.Err)
		}
		stuck.endAfter(time.Minute)
		r = wantAfter(t, k, since, 75*time.Second, 76*time.Second)
		if r.Err != nil || r.Gone.IsZero() || r.Freed != stats.Known(70) {
			t.Errorf("result %+v, want gone late with 70 freed", r)
		}
	})
}

func TestAProcessThatIsNotListedAnyMoreIsGoneWhenItHasExited(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		exiting := &fakeProcess{}
		pod := newFakePod(k, exiting)
		exiting.signalled = func() { delete(pod.processes, exiting.pid) }
		usage := int64(100)
		time.AfterFunc(time.Second, func() { usage = 0; close(exiting.ended) })
		since := start(t, k, Victim{UID: "a", Target: pod, Usage: func() stats.Amount { return stats.Known(usage) }})
		if r := wantAfter(t, k, since, time.Second, time.Second); r.Err != nil || r.Freed != stats.Known(100) {
			t.Errorf("result %+v, want 100 freed", r)
		}
	})
}

func TestAPodWhoseProcessesRefuseEverySignalFailsAtOnce(t *testing.T) {
	for name, target := range map[string]func(k *Killer) Target{
		"not permitted": func(k *Killer) Target { return newFakePod(k, &fakeProcess{refuse: unix.EPERM}) },
		"not listed": func(*Killer) Target {
			return &scripted{listError: unix.EIO, killError: errors.ErrUnsupported, populated: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, k *Killer) {
				since := start(t, k, Victim{UID: "a", Grace: time.Hour, Target: target(k)})
				r := wantAfter(t, k, since, 0, 0)
				if !errors.Is(r.Err, ErrNotSignalled) || !r.Signalled.IsZero() {
					t.Errorf("result %+v, want %v", r, ErrNotSignalled)
				}
			})
		})
	}
}

func TestAPodThatTheKernelKillsAtOnceNeedsNoListing(t *testing.T) {
	target := &scripted{populated: true}
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		since := start(t, k, Victim{UID: "a", Target: target})
		time.AfterFunc(50*time.Millisecond, target.empty)
		r := wantAfter(t, k, since, 50*time.Millisecond, 50*time.Millisecond+longestPause)
		if r.Err != nil || !r.Signalled.Equal(since) || target.killed() == 0 {
			t.Errorf("result %+v after %d kills", r, target.killed())
		}
	})
}

func TestKillRefusesMoreThanItsBoundAndTakesMoreOnceOneIsGone(t *testing.T) {
	stuck := &scripted{populated: true}
	inBubble(t, Config{Victims: 2}, func(t *testing.T, k *Killer) {
		start(t, k, Victim{UID: "a", Target: stuck})
		start(t, k, Victim{UID: "b", Target: &scripted{populated: true}})
		if err := k.Kill(Victim{UID: "c", Target: stuck}); !errors.Is(err, ErrFull) {
			t.Errorf("third kill: %v, want %v", err, ErrFull)
		}
		stuck.empty()
		if r := <-k.Results(); r.UID != "a" {
			t.Errorf("result %+v, want that of a", r)
		}
		synctest.Wait()
		start(t, k, Victim{UID: "c", Target: stuck})
		if r := <-k.Results(); r.UID != "c" {
			t.Errorf("result %+v, want that of c", r)
		}
	})
}

func TestAKillThatHasFailedMakesRoomForOthers(t *testing.T) {
	stuck := &scripted{populated: true}
	inBubble(t, Config{Victims: 1}, func(t *testing.T, k *Killer) {
		start(t, k, Victim{UID: "stuck", Target: stuck})
		if r := <-k.Results(); r.UID != "stuck" || r.Err == nil {
			t.Errorf("result %+v, want a failure", r)
		}
		other := &scripted{populated: true}
		start(t, k, Victim{UID: "other", Target: other})
		other.empty()
		if r := <-k.Results(); r.UID != "other" || r.Err != nil {
			t.Errorf("result %+v, want the end of other", r)
		}
		stuck.empty()
		if r := <-k.Results(); r.UID != "stuck" || r.Err != nil {
			t.Errorf("result %+v, want the end of stuck", r)
		}
		synctest.Wait()
		start(t, k, Victim{UID: "third", Target: &scripted{}})
		<-k.Results()
	})
}

func TestMoreProcessesThanAreHeldAtATimeAllDie(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		var many []*fakeProcess
		for range 2*maxHeld + 1 {
			many = append(many, &fakeProcess{diesOf: []unix.Signal{unix.SIGKILL}})
		}
		since := start(t, k, Victim{UID: "a", Target: newFakePod(k, many...)})
		wantAfter(t, k, since, 0, time.Second)
	})
}

func TestAPodThatTheRuntimeStopsGetsNoSIGTERMUntilThatFailsAndSIGKILLWhenItsGraceEnds(t *testing.T) {
	for name, c := range map[string]struct {
		fails        time.Duration // when the call to the runtime fails; zero: never
		endsByItself time.Duration
		want         time.Duration
		wantSignals  []unix.Signal
		prepared     bool
	}{
		"it ends in time":         {endsByItself: time.Second, want: time.Second},
		"it does not end in time": {want: 5 * time.Second, wantSignals: []unix.Signal{unix.SIGKILL}},
		"the runtime fails":       {fails: 2 * time.Second, want: 2 * time.Second, wantSignals: []unix.Signal{unix.SIGTERM}},
		"it was prepared":         {prepared: true, endsByItself: time.Second, want: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, k *Killer) {
				p := &fakeProcess{diesOf: []unix.Signal{unix.SIGTERM, unix.SIGKILL}}
				elsewhere, ended := make(chan struct{}), make(chan struct{})
				pod := newFakePod(k, p)
				if c.fails > 0 {
					time.AfterFunc(c.fails, func() { close(elsewhere) })
				}
				if c.endsByItself > 0 {
					p.endAfter(c.endsByItself)
				}
				if c.prepared {
					k.Prepare([]Victim{{UID: "a", Target: pod}})
				}
				k.Prepare([]Victim{{UID: "a", Target: pod}})
				since := start(t, k, Victim{UID: "a", Grace: 5 * time.Second, Target: pod, Elsewhere: elsewhere, Ended: func() { close(ended) }})
				wantAfter(t, k, since, c.want, c.want+longestPause)
				<-ended
				if fmt.Sprint(p.got) != fmt.Sprint(c.wantSignals) {
					t.Errorf("signals %v, want %v", p.got, c.wantSignals)
				}
			})
		})
	}
}

// restarted is a pod in which another program starts a process just before it may not any more.
type restarted struct {
	*fakePod
	starts    *fakeProcess
	forbidden bool
}

func (r *restarted) ForbidStarts() (begun bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forbidden {
		return false
	}
	r.forbidden, r.processes[r.starts.pid] = true, r.starts
	return true
}

func TestAPodIsGoneOnceNothingCanBeStartedInIt(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, k *Killer) {
		pod := &restarted{fakePod: newFakePod(k, &fakeProcess{diesOf: []unix.Signal{unix.SIGTERM}}, &fakeProcess{diesOf: []unix.Signal{unix.SIGKILL}})}
		pod.starts = pod.processes[1<<30+1]
		delete(pod.processes, pod.starts.pid)
		start(t, k, Victim{UID: "a", Target: pod, Grace: time.Second})
		if r := <-k.Results(); r.Err != nil || !pod.starts.exited() || !slices.Contains(pod.starts.got, unix.SIGKILL) {
			t.Errorf("result %+v, and the process that was started got %v", r, pod.starts.got)
		}
	})
}
