package control

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// disk is a node of which only the disk is measured.
type disk struct{ free atomic.Int64 }

func (d *disk) Read(n *stats.Node) {
	*n = stats.Node{Time: time.Now(), NodeFs: stats.Filesystem{Available: stats.Known(d.free.Load()), Capacity: stats.Known(100)}}
}

// pod holds something on the disk, and counts how often it was killed.
type pod struct{ kills atomic.Int32 }

func (p *pod) Read(s *stats.Pod) error {
	*s = stats.Pod{Processes: stats.Known(1), Volumes: []stats.Volume{{Used: stats.Known(1)}}}
	return nil
}

func (p *pod) AppendProcesses(pids []int) ([]int, error) { return pids, nil }
func (p *pod) Kill() error                               { return nil }
func (p *pod) Populated() (bool, error)                  { return false, nil }

// killer has pods gone at once.
type killer struct {
	pods    *pod
	results chan kill.Result
}

func (k *killer) Kill(v kill.Victim) error {
	k.pods.kills.Add(1)
	k.results <- kill.Result{UID: v.UID, Signalled: time.Now(), Gone: time.Now()}
	return nil
}

func (k *killer) Hasten(types.UID, time.Duration) {}
func (k *killer) Results() <-chan kill.Result     { return k.results }

// survey is complete when the test says so.
type survey struct {
	requests atomic.Int32
	mu       sync.Mutex
	since    time.Time
	done     chan struct{}
}

func (s *survey) Request()              { s.requests.Add(1) }
func (s *survey) Done() <-chan struct{} { return s.done }

func (s *survey) Since() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

func (s *survey) complete() {
	s.mu.Lock()
	s.since = time.Now()
	s.mu.Unlock()
	s.done <- struct{}{}
}

// withDisk runs a loop over a disk of 100 of which 10 must be free, and two pods
// on it.
func withDisk(t *testing.T, play func(*disk, *pod, *survey)) {
	synctest.Test(t, func(t *testing.T) {
		node, pods, surveys := &disk{}, &pod{}, &survey{done: make(chan struct{}, 1)}
		node.free.Store(50)
		thresholds := []eviction.Threshold{{Signal: eviction.NodeFsAvailable, Value: eviction.Value{Amount: 10}}}
		cfg := Config{Eviction: eviction.New(eviction.Config{Thresholds: thresholds}, eviction.SharedFs), HousekeepingInterval: time.Second}
		l := New(cfg, Ports{Sensor: node, Killer: &killer{pods, make(chan kill.Result, 9)}, Survey: surveys}, slog.New(slog.DiscardHandler))
		var set []Pod
		for _, name := range []string{"a", "b"} {
			digest := &eviction.Pod{Namespace: "default", Name: name, UID: types.UID(name), Volumes: []eviction.Volume{{Name: "v", Local: true}}}
			set = append(set, Pod{Pod: digest, Meter: pods, Target: pods})
		}
		l.SetPods(set)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			for range l.Reports() {
			}
		})
		running.Go(func() { l.Run(ctx) })
		synctest.Wait()
		play(node, pods, surveys)
		cancel()
		running.Wait()
	})
}

func TestEveryCrossingOfADisksThresholdIsRankedByASurveyOfItsOwn(t *testing.T) {
	withDisk(t, func(node *disk, pods *pod, surveys *survey) {
		for crossing := range int32(2) {
			node.free.Store(5)
			time.Sleep(2 * time.Second)
			if asked := surveys.requests.Load(); asked != crossing+1 || pods.kills.Load() != 0 {
				t.Errorf("crossing %d: %d surveys asked for, %d pods killed before one was complete", crossing, asked, pods.kills.Load())
			}
			node.free.Store(50) // before the survey is complete
			time.Sleep(2 * surveyPatience)
		}
		node.free.Store(5)
		time.Sleep(2 * time.Second)
		surveys.complete()
		time.Sleep(time.Second)
		if kills := pods.kills.Load(); kills != 1 {
			t.Errorf("%d pods killed after a survey, want 1", kills)
		}
	})
}

func TestTheNextPodForADiskWaitsForTheVolumesOfTheFirst(t *testing.T) {
	withDisk(t, func(node *disk, pods *pod, surveys *survey) {
		node.free.Store(5)
		time.Sleep(2 * time.Second)
		surveys.complete()
		time.Sleep(showing - 2*time.Second)
		if kills := pods.kills.Load(); kills != 1 {
			t.Errorf("%d pods killed before the volumes of the first could be away, want 1", kills)
		}
		time.Sleep(4 * time.Second)
		if kills := pods.kills.Load(); kills != 2 {
			t.Errorf("%d pods killed when the disk stayed full, want 2", kills)
		}
	})
}
