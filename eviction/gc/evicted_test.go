package gc_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
)

// turn changes what the runtime has.
func (w *fixture) turn(change func(*inventory.Snapshot)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := *w.inventory
	now.Containers, now.Sandboxes = slices.Clone(now.Containers), slices.Clone(now.Sandboxes)
	change(&now)
	w.inventory = &now
}

// state makes the first container, and its sandbox, run or not.
func (w *fixture) state(state string) {
	w.turn(func(i *inventory.Snapshot) {
		i.Containers[0].State, i.Sandboxes[0].Ready = state, state == inventory.ContainerRunning
	})
}

// rule: M.37
func TestWhatIsLeftOfAPodEvictedForItsDiskIsRemovedAtOnceWithoutAKubelet(t *testing.T) {
	alone := gc.Config{Periodic: gc.Periodic{Containers: true}}
	prepare := func(w *fixture) {
		w.incomplete = true
		w.container("body", "evicted", 0, gibi)
		w.container("other", "ended", time.Hour, gibi)
		w.inventory.Sandboxes[1].Ready = false
		w.image("a", 1, 1)
		w.state(inventory.ContainerRunning)
	}
	t.Run("its containers are removed once they have exited, and those of other pods are not", func(t *testing.T) {
		withCollector(t, setting{cfg: alone, prepare: prepare}, func(w *fixture) {
			w.Evicted("evicted")
			w.at(400 * time.Millisecond)
			w.state(inventory.ContainerExited)
			w.at(30 * time.Second)
			w.expect("600ms removeContainer body", "700ms removeSandbox of-body", "700ms evicted: expected 1, freed 1 GiB ")
		})
	})
	t.Run("late where its sandbox is stopped late", func(t *testing.T) {
		withCollector(t, setting{cfg: alone, prepare: prepare}, func(w *fixture) {
			w.Evicted("evicted")
			w.at(90 * time.Second)
			w.state(inventory.ContainerExited)
			w.at(3 * time.Minute)
			w.expect("2m0.1s removeContainer body", "2m0.2s removeSandbox of-body", "2m0.2s containers: expected 1, freed 1 GiB ")
		})
	})
	t.Run("and is tried again at the set time where it is refused", func(t *testing.T) {
		withCollector(t, setting{cfg: alone, prepare: prepare}, func(w *fixture) {
			w.fails["body"] = errors.New("it is busy")
			w.state(inventory.ContainerExited)
			w.Evicted("evicted")
			w.at(90 * time.Second)
			w.expect("100ms evicted: expected 0, freed 0 GiB failed body", "1m0.1s containers: expected 0, freed 0 GiB failed body, ContainerGCFailed")
		})
	})
	t.Run("before anything else that a disk may lose", func(t *testing.T) {
		withCollector(t, setting{cfg: alone, minimum: 1, prepare: prepare}, func(w *fixture) {
			w.Evicted("evicted")
			w.at(70 * time.Second)
			w.state(inventory.ContainerExited)
			w.starve()
			w.expect("1m10.1s removeContainer body", "1m10.1s pressure: expected 1, freed 1 GiB ")
		})
	})
	t.Run("not when it was started again", func(t *testing.T) {
		withCollector(t, setting{cfg: alone, prepare: prepare}, func(w *fixture) {
			w.Evicted("evicted")
			w.at(time.Second)
			w.turn(func(i *inventory.Snapshot) { i.Containers[0].Created = time.Now() })
			w.at(2 * time.Second)
			w.state(inventory.ContainerExited)
			w.at(3 * time.Minute)
			w.expect()
		})
	})
	t.Run("not where the kubelet does", func(t *testing.T) {
		withCollector(t, setting{prepare: prepare}, func(w *fixture) {
			w.state(inventory.ContainerExited)
			w.Evicted("evicted")
			w.at(3 * time.Minute)
			w.expect()
		})
	})
}

// rule: M.38
func TestACollectionIsGoneOnWithWhenTheRuntimeComesBack(t *testing.T) {
	for _, c := range []struct {
		name string
		away time.Duration
		want []string
	}{
		{"in time", 3 * time.Second, []string{"100ms removeImage a", "3.1s removeImage b", "3.1s pressure: expected 2, freed 2 GiB "}},
		{"too late", time.Minute, []string{"100ms removeImage a", "10.15s pressure: expected 1, freed 1 GiB short, the container runtime does not answer, FreeDiskSpaceFailed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			withCollector(t, setting{minimum: 2, prepare: func(w *fixture) {
				w.pods["p"] = reclaim.Pod{}
				for _, id := range []string{"a", "b", "c"} {
					w.image(id, 1, 1)
				}
				lost := fmt.Errorf("remove image b: %w", wire.ErrAway)
				w.fails["b"] = lost
				connect := func(connected bool) func() {
					return func() {
						w.turn(func(i *inventory.Snapshot) { i.Connected, i.Since = connected, time.Now() })
						w.mu.Lock()
						defer w.mu.Unlock()
						delete(w.fails, "b")
					}
				}
				time.AfterFunc(150*time.Millisecond, connect(false))
				time.AfterFunc(c.away, connect(true))
			}}, func(w *fixture) {
				w.starve()
				w.expect(c.want...)
				w.at(2 * time.Minute)
			})
		})
	}
}
