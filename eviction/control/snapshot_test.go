package control_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
)

const clients = 24

// ask has many clients ask once at the same time.
func ask(w *fixture) (answers [clients]control.Snapshot) {
	var asking sync.WaitGroup
	for i := range answers {
		asking.Go(func() {
			s, err := w.Snapshot(w.Context())
			if err != nil {
				w.Error(err)
			}
			answers[i] = s
		})
	}
	asking.Wait()
	return answers
}

// rule: M.62
func TestReadersShareOneSnapshot(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}}, func(w *fixture) {
		w.at(12500 * time.Millisecond)
		made := map[time.Time]bool{}
		for _, s := range ask(w) {
			made[s.At] = true
		}
		if len(made) > clients/4 { // those that ask while one is made may get the next
			t.Errorf("%d clients got %d snapshots", clients, len(made))
		}
		reads, wakes := w.sensor.count(), w.waiter.woken()
		again := ask(w)
		for i, s := range again {
			if !s.At.Equal(again[0].At) || &s.Candidates[0] != &again[0].Candidates[0] {
				t.Errorf("client %d got a snapshot of its own", i)
			}
		}
		if reads, wakes = w.sensor.count()-reads, w.waiter.woken()-wakes; reads > 0 || wakes > 0 {
			t.Errorf("%d clients that asked again have woken the loop %d times, and it has read the node %d times", clients, wakes, reads)
		}
	})
}

// rule: M.62
func TestAReaderOfTheNextLookWakesNothing(t *testing.T) {
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: []*pod{using("a", gibi)}}, func(w *fixture) {
		w.at(12500 * time.Millisecond)
		asked, wakes := time.Now(), w.waiter.woken()
		s, err := w.Next(w.Context())
		if err != nil || !s.At.After(asked) {
			t.Errorf("a snapshot of %v, asked for at %v: %v", s.At, asked, err)
		}
		if woken := w.waiter.woken() - wakes; woken > 0 {
			t.Errorf("the loop was woken %d times", woken)
		}
	})
}

// TestReadersOfANearThresholdAreAnsweredWithoutTheLoop lets memory fall at a steady rate, with and
// without readers.
//
// rule: M.62
func TestReadersOfANearThresholdAreAnsweredWithoutTheLoop(t *testing.T) {
	const step = 2 * time.Millisecond
	fall := func(reading bool) (reads int) {
		available := gibi + 700*mebi
		withLoop(t, setting{thresholds: memoryHard, node: memory(available), pods: []*pod{ending(using("a", gibi), immortal)}}, func(w *fixture) {
			w.at(time.Second)
			ask(w) // as evictd does to rank the pods
			fallBy := func() {
				available -= 512 * mebi * int64(step) / int64(time.Second)
				w.sensor.set(memory(available))
				time.Sleep(step)
			}
			for available > gibi+300*mebi {
				fallBy()
			}
			begun, wakes := w.sensor.count(), w.waiter.woken()
			for available > gibi+50*mebi {
				if reading {
					for _, s := range ask(w) {
						if len(s.Candidates) == 0 {
							t.Fatalf("a reader got %+v", s)
						}
					}
				}
				fallBy()
			}
			synctest.Wait()
			reads = w.sensor.count() - begun
			if woken := w.waiter.woken() - wakes; woken != 0 {
				t.Errorf("readers have woken the loop %d times", woken)
			}
			for available > gibi-20*mebi {
				fallBy()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.lines) == 0 || !strings.HasSuffix(w.lines[0], " kill a") {
				t.Errorf("was done: %v", w.lines)
			}
		})
		return reads
	}
	if with, without := fall(true), fall(false); with != without {
		t.Errorf("the loop read the node %d times with readers and %d times without", with, without)
	}
}

// TestPodsThatStartNearAThresholdAreListed: evictd opens the processes of the listed pods, so that a
// decision opens none.
//
// rule: M.62
func TestPodsThatStartNearAThresholdAreListed(t *testing.T) {
	available := gibi + 300*mebi
	withLoop(t, setting{thresholds: memoryHard, node: memory(available), pods: []*pod{using("a", gibi)}}, func(w *fixture) {
		w.at(time.Second)
		for range 50 {
			available -= 2 * mebi
			w.sensor.set(memory(available))
			w.at(time.Since(w.begun) + 2*time.Millisecond)
		}
		w.setPods(using("a", gibi), using("b", gibi))
		begun := time.Now()
		s, err := w.Recent(w.Context())
		if err != nil || len(s.Candidates) != 2 {
			t.Fatalf("got %d pods, error %v", len(s.Candidates), err)
		}
		if waited := time.Since(begun); waited > time.Millisecond {
			t.Errorf("the loop has listed the new pod after %v", waited)
		}
	})
}

// TestPodsAreMeasuredForReadersAFewAtATime: what is due comes first.
//
// rule: M.62
func TestPodsAreMeasuredForReadersAFewAtATime(t *testing.T) {
	var pods []*pod
	for i := range 40 {
		p := using(string(rune('A'+i)), gibi)
		p.slow = 10 * time.Millisecond
		pods = append(pods, p)
	}
	withLoop(t, setting{thresholds: memoryHard, node: plenty, pods: pods}, func(w *fixture) {
		w.at(12500 * time.Millisecond)
		got := make(chan control.Snapshot, 1)
		go func() {
			s, err := w.Snapshot(w.Context())
			if err != nil {
				t.Error(err)
			}
			got <- s
		}()
		w.at(12550 * time.Millisecond) // while the first ones are measured
		w.sensor.set(short)
		w.waiter.notify("memcg-threshold")
		s := <-got
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lines) == 0 || !strings.Contains(w.lines[0], " kill ") {
			t.Fatalf("was done: %v", w.lines)
		}
		if !s.State.Pressure[eviction.MemoryPressure].Reported {
			t.Error("the reader was answered before the pass that was due")
		}
	})
}
