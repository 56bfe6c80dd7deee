package control_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

func TestOfWhatTheLoopHasNotReceivedTheLastCounts(t *testing.T) {
	several := func(w *fixture) {
		w.setPods(using("b", gibi))
		w.setPods(ending(using("c", gibi), immortal))
		w.Configure((&setting{}).config())
		w.Configure((&setting{thresholds: memoryHard}).config())
	}
	withLoop(t, setting{node: short, pods: []*pod{using("a", gibi)}, before: several}, func(w *fixture) {
		w.at(time.Second)
		w.expect("0s kill c")
		w.stop()
		<-w.ended
		several(w) // nothing receives them any more, and no call blocks
	})
}

func TestReportsThatAreNotReceivedAreLostAndCountedAndBlockNothing(t *testing.T) {
	const queue = 64
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}, unread: true}, func(w *fixture) {
		w.at(99*housekeeping + 4500*time.Millisecond)
		w.sensor.set(short)
		w.at(100*housekeeping - time.Second)
		w.expect("16m35s kill a")
		var kept []control.Report
		for range queue {
			kept = append(kept, <-w.Reports())
		}
		if last := kept[queue-1]; last.Lost != 0 || last.At.Sub(w.begun).Round(time.Second) != (queue-1)*housekeeping {
			t.Errorf("kept %v with %d lost, want the first ones", last.At.Sub(w.begun), last.Lost)
		}
		// 36 housekeeping passes, that of the crossing, the victim's end and the pass after it.
		if next := <-w.Reports(); next.Lost != 39 {
			t.Errorf("%d reports lost, want 39", next.Lost)
		}
	})
}

func TestPassesAreReportedWhereTheyAreRegularOrDecideSomething(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{ending(using("a", 2*gibi), end{refused: kill.ErrFull}), using("b", gibi)}}, func(w *fixture) {
		w.at(12500 * time.Millisecond)
		w.sensor.set(short)
		w.at(13050 * time.Millisecond)
		w.sensor.set(plenty)
		w.at(25 * time.Second)
		var got []string
		for _, r := range w.reported() {
			var line strings.Builder
			line.WriteString(r.At.Sub(w.begun).Round(time.Millisecond).String() + " " + string(r.Source))
			for _, d := range r.Decisions {
				for _, e := range d.Evictions {
					line.WriteString(" evicts " + e.Pod.Name)
				}
			}
			for _, e := range r.Failed {
				line.WriteString(" fails to evict " + e.Pod.Name)
			}
			if r.Ended != nil {
				line.WriteString("end of " + string(r.Ended.UID))
			}
			if r.State.Pressure[eviction.MemoryPressure].Reported {
				line.WriteString(" under pressure")
			}
			got = append(got, line.String())
		}
		want := []string{
			"0s housekeeping", "10s housekeeping",
			"13s poll evicts b fails to evict a under pressure",
			"13.05s poll under pressure", // the threshold is not crossed any more
			"13.1s end of b", "13.1s victim-gone under pressure",
			"20s housekeeping under pressure",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

func TestAReportBelongsToItsReader(t *testing.T) {
	a := ending(using("a", gibi), immortal)
	a.usage.Containers = []stats.Container{{Memory: stats.Known(gibi)}}
	withLoop(t, setting{thresholds: memoryHard, node: short, pods: []*pod{a}, unread: true}, func(w *fixture) {
		var report control.Report
		for len(report.Decisions) == 0 || len(report.Decisions[len(report.Decisions)-1].Ranking) == 0 {
			report = <-w.Reports()
		}
		a.gone() // and then measured again
		w.at(12 * time.Second)
		ranked := report.Decisions[len(report.Decisions)-1].Ranking[0]
		if got := ranked.Candidate.Usage.Containers[0].Memory; got != stats.Known(gibi) {
			t.Errorf("the ranking has changed since: %v", got)
		}
	})
}

func TestASnapshotIsMeasuredForItsCaller(t *testing.T) {
	a := using("a", gibi)
	a.usage.Containers = []stats.Container{{Memory: stats.Known(gibi)}}
	node := memory(33 * gibi)
	withLoop(t, setting{thresholds: []eviction.Threshold{memoryHard[0], hard(eviction.PIDAvailable, 10)}, node: node, pods: []*pod{a, {name: "lost", lost: true}}}, func(w *fixture) {
		w.at(12500 * time.Millisecond)
		w.sensor.set(plenty)
		s, err := w.Snapshot(w.Context())
		require.NoError(t, err)
		a.gone()
		w.at(13 * time.Second)
		if got, _ := s.Observations[eviction.MemoryAvailable].Available.Get(); got != 32*gibi {
			t.Errorf("memory.available is %d, want what it is now", got)
		}
		if len(s.Candidates) != 1 || s.Candidates[0].Pod.Name != "a" || s.Candidates[0].Usage.Containers[0].Memory != stats.Known(gibi) {
			t.Errorf("candidates are %+v, want a as it was", s.Candidates)
		}
		if age := s.At.Sub(s.Node.Time); age < 0 || age > time.Millisecond {
			t.Errorf("the reading is %v old", age)
		}
		if until := s.Until; until[0] < time.Minute || until[1] >= 0 {
			t.Errorf("thresholds are %v away, want one that comes nearer and one that is not known", until)
		}
	})
}

// TestReadersDoNotDelayPasses has clients that ask again and again for pods that are slow to
// measure.
func TestReadersDoNotDelayPasses(t *testing.T) {
	a := using("a", gibi)
	a.slow = 10 * time.Millisecond
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{a}}, func(w *fixture) {
		ctx, cancel := context.WithTimeout(w.Context(), 15*time.Second)
		defer cancel()
		var reading sync.WaitGroup
		for range 24 {
			reading.Go(func() {
				for ctx.Err() == nil {
					_, _ = w.Snapshot(ctx)
					time.Sleep(time.Millisecond)
				}
			})
		}
		time.Sleep(2 * time.Second)
		w.sensor.set(short)
		reading.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lines) == 0 || !strings.HasSuffix(w.lines[0], " kill a") {
			t.Errorf("was done: %v", w.lines)
		}
	})
}

func TestASnapshotOfALoopThatHasEndedFailsWithItsContext(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty}, func(w *fixture) {
		w.at(time.Second)
		w.stop()
		<-w.ended
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		for range 20 { // more than are taken in
			if _, err := w.Snapshot(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("got %v", err)
			}
		}
	})
}

func TestTheLoopEndsWithItsKiller(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty}, func(w *fixture) {
		w.at(time.Second)
		close(w.killer.results)
		<-w.ended
		if got := len(w.reported()); got != 1 {
			t.Errorf("%d reports, want that of the first pass", got)
		}
	})
}

// TestAVictimIsGivenNoMoreThanTheSignalLeaves lets memory fall at a steady rate.
func TestAVictimIsGivenNoMoreThanTheSignalLeaves(t *testing.T) {
	const step = time.Millisecond
	for _, c := range []struct {
		name        string
		rate        int64 // MiB a second
		least, most time.Duration
	}{
		{"all that is configured where it lasts", 100, time.Second, time.Second},
		{"half of what is left, less what freeing needs", 512, 900 * time.Millisecond, 990 * time.Millisecond},
		{"less where it falls faster", 2048, 190 * time.Millisecond, 220 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			available := gibi + 100*mebi
			withLoop(t, setting{thresholds: memoryHard, node: memory(available), pods: []*pod{ending(using("a", gibi), immortal)}}, func(w *fixture) {
				w.at(time.Second)
				for available > gibi-100*mebi {
					available -= c.rate * mebi * int64(step) / int64(time.Second)
					w.sensor.set(memory(available))
					time.Sleep(step)
				}
				w.killer.mu.Lock()
				defer w.killer.mu.Unlock()
				if got, ok := w.killer.graces["a"]; !ok || got < c.least || got > c.most {
					t.Errorf("the shortest grace was %v, want from %v to %v", got, c.least, c.most)
				}
			})
		})
	}
}

// pulse counts beats.
type pulse struct{ beats atomic.Int32 }

func (p *pulse) Heartbeat(time.Time) { p.beats.Add(1) }

func TestEveryPassIsABeatAndOfALoopThatIsStuckThereIsNone(t *testing.T) {
	felt := &pulse{}
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pulse: felt}, func(w *fixture) {
		w.at(30 * time.Second)
		if beats := felt.beats.Load(); beats < 30 {
			t.Errorf("%d beats in 30 s", beats)
		}
		stuck := make(chan struct{})
		w.sensor.mu.Lock()
		w.sensor.stuck = stuck
		w.sensor.mu.Unlock()
		w.at(32 * time.Second)
		before := felt.beats.Load()
		w.at(time.Minute)
		if beats := felt.beats.Load() - before; beats != 0 {
			t.Errorf("%d beats while the sensor was stuck", beats)
		}
		close(stuck)
	})
}

// TestAnEvictedPodThatRunsAgainIsKilledAtOnce has no threshold met. A pod that is not on the node,
// and one whose eviction may not be reported, are left alone.
func TestAnEvictedPodThatRunsAgainIsKilledAtOnce(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", mebi), using("b", mebi)}}, func(w *fixture) {
		w.at(2500 * time.Millisecond)
		w.SetRestarted([]eviction.Restarted{{UID: "a"}, {UID: "b", Forbidden: true}, {UID: "c"}})
		w.at(2600 * time.Millisecond)
		w.expect("2.5s kill a")
		again := slices.IndexFunc(w.reported(), func(r control.Report) bool {
			return len(r.Restarted) == 3 && len(r.Decisions) == 1 && len(r.Decisions[0].EndAgain) == 1
		})
		if again < 0 {
			t.Error("no report says so")
		}
	})
}
