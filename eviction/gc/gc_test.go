package gc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/reclaim"
)

func TestADiskUnderPressureIsFreedOfWhatItLacks(t *testing.T) {
	pods := func(w *fixture) {
		w.pods["p"] = reclaim.Pod{}
		w.container("newest", "p", time.Hour, gibi)
	}
	for _, c := range []struct {
		name string
		setting
		want []string
	}{
		{
			"dead containers go first and suffice",
			setting{minimum: 2, prepare: func(w *fixture) {
				pods(w)
				w.container("older", "p", 2*time.Hour, gibi)
				w.container("oldest", "p", 3*time.Hour, gibi)
				w.image("a", 5, 5)
			}},
			[]string{"100ms removeContainer oldest", "100ms removeContainer older", "100ms pressure: expected 2, freed 2 GiB "},
		},
		{
			"more images follow where the disk fills up while it is freed",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.image("a", 5, 5)
				w.image("b", 5, 5)
				w.refill = 3 * gibi
			}},
			[]string{"100ms removeImage a", "200ms removeImage b", "200ms pressure: expected 10, freed 7 GiB "},
		},
		{
			"a snapshot of before the layout was known does not suffice",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.image("a", 5, 5)
				w.unseen = 8 * time.Millisecond
			}},
			[]string{"108ms removeImage a", "108ms pressure: expected 5, freed 5 GiB "},
		},
		{
			"images stay that are found to be on another disk",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.image("a", 5, 5)
				moved := eviction.New(w.cfg, eviction.ImageFs)
				w.moved = &moved
			}},
			[]string{"0s pressure: expected 0, freed 0 GiB short, FreeDiskSpaceFailed"},
		},
		{
			"they stay also by the policy Everything",
			setting{minimum: 4, cfg: gc.Config{Policy: reclaim.Policy{Everything: true, HighPercent: 85, LowPercent: 80, MaxPerPodContainer: 1, MaxContainers: -1}}, prepare: func(w *fixture) {
				w.image("a", 5, 5)
				moved := eviction.New(w.cfg, eviction.ImageFs)
				w.moved = &moved
			}},
			[]string{"0s pressure: expected 0, freed 0 GiB short, FreeDiskSpaceFailed"},
		},
		{
			"images follow where they do not",
			setting{minimum: 4, prepare: func(w *fixture) {
				pods(w)
				w.container("older", "p", 2*time.Hour, gibi)
				w.image("a", 5, 5)
				w.image("b", 5, 5)
			}},
			[]string{"100ms removeContainer older", "200ms removeImage a", "200ms pressure: expected 6, freed 6 GiB "},
		},
		{
			"images that share layers free less than they say, and more go",
			setting{minimum: 4, prepare: func(w *fixture) {
				for _, id := range []string{"a", "b", "c", "d"} {
					w.image(id, 4, 2)
				}
			}},
			[]string{"100ms removeImage a", "450ms removeImage b", "450ms pressure: expected 8, freed 4 GiB "},
		},
		{
			"what containers held is waited for where it shows late",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.late = 420 * time.Millisecond
				w.container("gone", "gone", time.Hour, 4*gibi)
				w.inventory.Sandboxes[0].Ready = false
				w.image("a", 4, 4)
			}},
			[]string{"100ms removeContainer gone", "550ms pressure: expected 4, freed 4 GiB "},
		},
		{
			"for five seconds, and also where the size of a layer is unknown",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.late = time.Minute
				w.container("gone", "gone", time.Hour, 4*gibi)
				w.inventory.Containers[0].Layer.Bytes = nil
				w.inventory.Sandboxes[0].Ready = false
				w.image("a", 4, 4)
			}},
			[]string{"100ms removeContainer gone", "200ms removeSandbox of-gone", "5.3s removeImage a", "7.3s pressure: expected 4, freed 0 GiB short, FreeDiskSpaceFailed"},
		},
		{
			"an image that shows late is not followed by another",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.late = 1170 * time.Millisecond
				w.image("a", 4, 4)
				w.image("b", 4, 4)
			}},
			[]string{"100ms removeImage a", "1.3s pressure: expected 4, freed 4 GiB "},
		},
		{
			"nor by the end of a pod where it frees more than the size that the runtime reports",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.late = 1170 * time.Millisecond
				w.image("a", 1, 4)
			}},
			[]string{"100ms removeImage a", "1.3s pressure: expected 1, freed 4 GiB "},
		},
		{
			"nor is an image whose number of inodes is unknown",
			setting{minimum: 4, signal: eviction.NodeFsInodesFree, prepare: func(w *fixture) {
				w.late = 1170 * time.Millisecond
				w.image("a", 0, 2)
				w.image("b", 0, 2)
				w.image("c", 0, 2)
			}},
			[]string{"100ms removeImage a", "1.65s removeImage b", "2.85s pressure: expected 0, freed 0 GiB "},
		},
		{
			"the policy Everything removes all that is unused",
			setting{minimum: 4, cfg: gc.Config{Policy: reclaim.Policy{Everything: true, HighPercent: 85, LowPercent: 80, MaxPerPodContainer: 1, MaxContainers: -1}}, prepare: func(w *fixture) {
				pods(w)
				w.container("older", "p", 2*time.Hour, 4*gibi)
				w.image("a", 4, 4)
				w.image("b", 4, 4)
			}},
			[]string{"100ms removeContainer older", "200ms removeImage a", "300ms removeImage b", "300ms pressure: expected 12, freed 12 GiB "},
		},
		{
			"what cannot be removed stops nothing else",
			setting{minimum: 4, prepare: func(w *fixture) {
				w.image("a", 4, 4)
				w.image("b", 4, 4)
				w.fails["a"] = errors.New("it is used")
			}},
			[]string{"200ms removeImage b", "200ms pressure: expected 4, freed 4 GiB failed a"},
		},
		{
			"what does not suffice is reported",
			setting{minimum: 9, prepare: func(w *fixture) { w.image("a", 4, 4) }},
			[]string{"100ms removeImage a", "350ms pressure: expected 4, freed 4 GiB short, FreeDiskSpaceFailed"},
		},
		{
			"a runtime that hangs ends it",
			setting{minimum: 9, prepare: func(w *fixture) {
				w.image("a", 4, 4)
				w.image("b", 4, 4)
				w.fails["a"] = errHang
			}},
			[]string{"1m0s pressure: expected 0, freed 0 GiB failed a, short, the container runtime has not answered in time, FreeDiskSpaceFailed"},
		},
		{
			"a runtime that is away ends it at once",
			setting{minimum: 9, prepare: func(w *fixture) { w.inventory.Connected = false }},
			[]string{"0s pressure: expected 0, freed 0 GiB short, the container runtime does not answer, FreeDiskSpaceFailed"},
		},
		{
			"while the containers cannot be listed nothing is removed",
			setting{minimum: 9, prepare: func(w *fixture) {
				w.image("a", 4, 4)
				w.inventory.Failing = map[string]string{"ListContainers": "layer not known"}
			}},
			[]string{"0s pressure: expected 0, freed 0 GiB short, the container runtime cannot list its containers: layer not known, FreeDiskSpaceFailed"},
		},
		{
			"while the images cannot be listed dead containers are removed",
			setting{minimum: 9, prepare: func(w *fixture) {
				pods(w)
				w.container("older", "p", 2*time.Hour, gibi)
				w.image("a", 4, 4)
				w.inventory.Failing = map[string]string{"ListImages": "layer not known"}
			}},
			[]string{"100ms removeContainer older", "100ms pressure: expected 1, freed 1 GiB short, FreeDiskSpaceFailed"},
		},
		{
			"without a runtime there is no report",
			setting{minimum: 9, prepare: func(w *fixture) { w.inventory = nil }},
			nil,
		},
		{
			"a dry run reports and removes nothing",
			setting{minimum: 4, cfg: gc.Config{DryRun: true}, prepare: func(w *fixture) {
				pods(w)
				w.container("older", "p", 2*time.Hour, gibi)
				w.image("a", 5, 5)
			}},
			[]string{"0s pressure: expected 6, freed 0 GiB would remove, older, a"},
		},
		{
			"images that are used stay, whatever is needed",
			setting{minimum: 9, prepare: func(w *fixture) {
				pods(w)
				w.inventory.Containers[0].Image = "used"
				w.image("used", 4, 4)
				w.image("named", 4, 4)
				w.image("pinned", 4, 4)
				w.inventory.Images[2].Pinned = true
				w.pods["starting"] = reclaim.Pod{Images: []string{"example.org/named:1"}}
			}},
			[]string{"0s pressure: expected 0, freed 0 GiB short, FreeDiskSpaceFailed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			// rule: 9.20
			// rule: M.31
			withCollector(t, c.setting, func(w *fixture) {
				w.starve()
				w.expect(c.want...)
				if c.cfg.DryRun {
					w.starve()
					w.expect() // nothing new
				}
			})
		})
	}
}

// rule: 9.1
// rule: 9.2
func TestCollectionsComeAtSetTimesWithoutAKubelet(t *testing.T) {
	garbageOf := func(w *fixture) {
		w.pods["p"] = reclaim.Pod{}
		w.container("newest", "p", time.Hour, 0)
		w.container("older", "p", 2*time.Hour, 0)
		w.available = 15 * gibi
		w.image("a", 3, 3)
		w.image("b", 3, 3)
		w.image("c", 3, 3)
	}
	off := reclaim.Policy{HighPercent: 100, LowPercent: 80, MaxPerPodContainer: 1, MaxContainers: -1}
	for _, c := range []struct {
		name string
		setting
		want []string
	}{
		{
			"both",
			setting{cfg: gc.Config{Periodic: gc.Periodic{Containers: true, Images: true}}},
			[]string{"1m0.1s removeContainer older", "1m0.1s containers: expected 0, freed 0 GiB ",
				"5m0.1s removeImage a", "5m0.2s removeImage b", "5m0.2s images: expected 6, freed 6 GiB "},
		},
		{
			"images alone",
			setting{cfg: gc.Config{Periodic: gc.Periodic{Images: true}}},
			[]string{"5m0.1s removeImage a", "5m0.2s removeImage b", "5m0.2s images: expected 6, freed 6 GiB "},
		},
		{"no images at a hundred percent", setting{cfg: gc.Config{Policy: off, Periodic: gc.Periodic{Images: true}}}, nil},
		{"neither where the kubelet collects", setting{}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.prepare = garbageOf
			withCollector(t, c.setting, func(w *fixture) {
				w.at(11 * time.Minute)
				w.expect(c.want...)
			})
		})
	}
}

// rule: 9.18
// rule: 9.19
func TestFaultsAreReportedByTheKubeletsReasons(t *testing.T) {
	for _, c := range []struct {
		name    string
		regular gc.Periodic
		prepare func(*fixture)
		want    []string
	}{
		{
			"a disk without capacity",
			gc.Periodic{Images: true},
			func(w *fixture) { w.capacity = 0 },
			[]string{"5m0s images: expected 0, freed 0 GiB InvalidDiskCapacity", "10m0s images: expected 0, freed 0 GiB InvalidDiskCapacity, as before"},
		},
		{
			"images that free too little, and a second time",
			gc.Periodic{Images: true},
			func(w *fixture) { w.image("a", 1, 1) },
			[]string{"5m0.1s removeImage a", "5m0.1s images: expected 1, freed 1 GiB short, FreeDiskSpaceFailed", "10m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed, ImageGCFailed"},
		},
		{
			"a container that cannot be removed, and its sandbox stays",
			gc.Periodic{Containers: true},
			func(w *fixture) {
				w.container("gone", "gone", time.Hour, 0)
				w.inventory.Sandboxes[0].Ready = false
				w.fails["gone"] = errors.New("it is busy")
			},
			[]string{"1m0.1s containers: expected 0, freed 0 GiB failed gone, ContainerGCFailed"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			withCollector(t, setting{cfg: gc.Config{Periodic: c.regular}, prepare: c.prepare}, func(w *fixture) {
				w.at(time.Minute + time.Second)
				if c.regular.Images {
					w.at(10*time.Minute + time.Second)
				}
				w.expect(c.want...)
			})
		})
	}
}

// rule: M.101
func TestACollectionWithoutAnythingToRemoveIsReportedOnce(t *testing.T) {
	withCollector(t, setting{cfg: gc.Config{Periodic: gc.Periodic{Images: true}}}, func(w *fixture) {
		w.at(12 * time.Minute)
		w.expect("5m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed", "10m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed, ImageGCFailed")
		w.at(22 * time.Minute)
		w.expect("15m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed, ImageGCFailed, as before", "20m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed, ImageGCFailed, as before")
		w.mu.Lock()
		w.available = 50 * gibi
		w.mu.Unlock()
		w.at(27 * time.Minute)
		w.expect()
		w.mu.Lock()
		w.available = 0
		w.mu.Unlock()
		w.at(32 * time.Minute)
		w.expect("30m0s images: expected 0, freed 0 GiB short, FreeDiskSpaceFailed")
	})
}

func TestWhatIsRemovedCanBePreviewed(t *testing.T) {
	withCollector(t, setting{prepare: func(w *fixture) {
		w.pods["p"] = reclaim.Pod{}
		w.container("newest", "p", time.Hour, gibi)
		w.container("older", "p", 2*time.Hour, gibi)
		w.image("a", 1, 1)
		w.image("pinned", 1, 1)
		w.inventory.Images[1].Pinned = true
	}}, func(w *fixture) {
		plan := w.Preview()
		if len(plan.Removals) != 2 || plan.Removals[0].ID != "older" || plan.Removals[1].ID != "a" || plan.Bytes != 2*gibi {
			t.Errorf("would remove %+v", plan.Removals)
		}
	})
}

// rule: 9.6
// rule: 9.8
func TestTheAgesOfImagesSurviveARestart(t *testing.T) {
	policy := reclaim.Policy{HighPercent: 100, LowPercent: 80, ImageMinAge: 2 * time.Minute, ImageMaxAge: time.Hour, MaxPerPodContainer: 1, MaxContainers: -1}
	cfg := gc.Config{Policy: policy, Periodic: gc.Periodic{Images: true}}
	var before map[string][]byte
	remember := func(w *fixture) {
		before = map[string][]byte{}
		for kind, data := range w.entries {
			before[kind] = data
		}
	}
	restarted := func(after time.Duration) func(*fixture) {
		return func(w *fixture) {
			time.Sleep(after)
			for kind, data := range before {
				w.entries[kind] = data
			}
			w.available = 50 * gibi
			w.image("old", 1, 1)
			w.image("young", 1, 1)
			w.inventory.Images[1].ID = "sha256:0123456789abcdef0123456789abcdef"
		}
	}
	withCollector(t, setting{cfg: cfg, prepare: func(w *fixture) { w.available = 50 * gibi; w.image("old", 1, 1) }}, func(w *fixture) {
		w.at(50 * time.Minute)
		w.expect()
		remember(w)
	})
	// Every test of simulated time begins at one and the same instant, so that the
	// time before the restart is slept through.
	t.Run("soon", func(t *testing.T) {
		withCollector(t, setting{cfg: cfg, minimum: 90, prepare: restarted(50*time.Minute + 10*time.Second)}, func(w *fixture) {
			w.starve(eviction.UnusedImages)
			w.expect("50m10.1s removeImage old", "50m10.1s pressure: expected 1, freed 1 GiB short, FreeDiskSpaceFailed")
		})
	})
	t.Run("soon, and one that was unused for long enough goes in time", func(t *testing.T) {
		withCollector(t, setting{cfg: cfg, prepare: restarted(50*time.Minute + 10*time.Second)}, func(w *fixture) {
			w.at(66 * time.Minute)
			w.expect("1h5m10.1s removeImage old", "1h5m10.1s images: expected 1, freed 1 GiB ")
		})
	})
	t.Run("after a gap in which they may have been used", func(t *testing.T) {
		withCollector(t, setting{cfg: cfg, prepare: restarted(80 * time.Minute)}, func(w *fixture) {
			w.at(130 * time.Minute)
			w.expect()
		})
	})
}

func TestOneThatWasRemovedIsNotSeenThoughTheListIsOld(t *testing.T) {
	withCollector(t, setting{minimum: 4, prepare: func(w *fixture) { w.image("a", 1, 1) }}, func(w *fixture) {
		stale := w.inventory
		w.starve(eviction.UnusedImages)
		w.mu.Lock()
		w.inventory, w.lines = stale, nil
		w.mu.Unlock()
		w.starve(eviction.UnusedImages)
		if plan := w.Preview(); len(plan.Removals) > 0 {
			t.Errorf("would remove %+v", plan.Removals)
		}
		w.expect("350ms pressure: expected 0, freed 0 GiB short, FreeDiskSpaceFailed")
	})
}
