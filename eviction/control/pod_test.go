package control_test

import (
	"io/fs"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// pod is a pod of the fixture; it implements its meter and its target.
type pod struct {
	name    string
	grace   int64         // seconds, 0: the pod does not say
	request int64         // bytes of memory
	limited bool          // has a local-storage limit, which it keeps
	lost    bool          // nothing to kill was found
	lingers bool          // its processes are not reaped when they have ended
	leaves  bool          // its cgroup is left when it has ended, with its memory
	ended   bool          // by itself; its memory is read as before, and that it has no process only where processes are
	fault   error         // of measuring
	slow    time.Duration // to measure
	usage   stats.Pod
	ends    []end // of its kills in turn; those after the last are gone after 100ms

	mu sync.Mutex
}

// end is how a kill ends.
type end struct {
	refused  error         // by Kill
	after    time.Duration // the result comes so long after; negative: never
	err      error         // of the result; nil: the pod is gone
	unreaped bool          // no process was found, and the pod still shows
}

// using makes a pod of one process that uses so much memory.
func using(name string, bytes int64) *pod {
	return &pod{name: name, usage: stats.Pod{Memory: stats.Known(bytes), Processes: stats.Known(1)}}
}

// storing makes a pod of one process that has written so much.
func storing(name string, bytes int64) *pod {
	p := using(name, mebi)
	p.usage.Containers = []stats.Container{{Rootfs: stats.Known(bytes)}}
	return p
}

func (p *pod) handled() control.Pod {
	digest := &eviction.Pod{UID: types.UID(p.name), Namespace: "default", Name: p.name, MemoryRequest: p.request, QOS: v1.PodQOSBestEffort, Containers: []eviction.Container{{Name: "c"}}}
	if p.grace > 0 {
		digest.TerminationGracePeriod = &p.grace
	}
	if p.limited {
		digest.StorageLimit = quantity(1000 * gibi)
	}
	handled := control.Pod{Pod: digest, Meter: p, Target: p}
	if p.lost {
		handled.Target = nil
	}
	return handled
}

// Read implements control.Meter.
func (p *pod) Read(s *stats.Pod) error {
	time.Sleep(p.slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	*s = stats.Pod{
		Time: time.Now(), Memory: p.usage.Memory, Processes: p.usage.Processes, Threads: p.usage.Threads,
		Containers: append(s.Containers[:0], p.usage.Containers...), Volumes: append(s.Volumes[:0], p.usage.Volumes...),
	}
	return p.fault
}

// ReadMemory implements control.Meter. Of a pod that leaves its cgroup it does not read what runs.
func (p *pod) ReadMemory(s *stats.Pod, _ bool) error {
	processes := s.Processes
	err := p.Read(s)
	if p.leaves {
		s.Processes = processes
	}
	if p.ended {
		s.Processes = stats.Amount{}
	}
	return err
}

func (p *pod) ReadStall() (stats.Stall, error) { return stats.Stall{}, nil }

// AppendProcesses, Kill and Populated make the pod a kill.Target.
func (p *pod) AppendProcesses(pids []int) ([]int, error) { return pids, fs.ErrNotExist }
func (p *pod) Kill() error                               { return nil }
func (p *pod) Populated() (bool, error)                  { return false, nil }

func (p *pod) next() end {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ends) == 0 {
		return end{after: 100 * time.Millisecond}
	}
	next := p.ends[0]
	p.ends = p.ends[1:]
	return next
}

func (p *pod) gone() {
	p.mu.Lock()
	defer p.mu.Unlock()
	memory := p.usage.Memory
	p.usage = stats.Pod{Processes: stats.Known(0)}
	if p.leaves {
		p.usage.Memory = memory
	}
	if p.lingers {
		p.usage.Threads = stats.Known(1)
	}
}

func (p *pod) vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fs.ErrNotExist
}

func (p *pod) reap() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage.Threads = stats.Known(0)
}

// killer ends pods as they say themselves.
type killer struct {
	*fixture
	results chan kill.Result
	graces  map[types.UID]time.Duration // the shortest of each
	sigkill map[types.UID]time.Time     // when it is due
	late    time.Duration               // by which it is sent later
}

func (k *killer) Kill(v kill.Victim) error {
	p := v.Target.(*pod)
	e := p.next()
	if e.refused != nil {
		k.write("kill %s: %v", v.UID, e.refused)
		return e.refused
	}
	if v.Grace <= time.Second {
		k.write("kill %s", v.UID)
	} else {
		k.write("kill %s in %v", v.UID, v.Grace.Round(time.Millisecond))
	}
	k.Hasten(v.UID, v.Grace)
	if e.after < 0 {
		return nil
	}
	signalled := time.Now()
	time.AfterFunc(e.after, func() {
		r := kill.Result{UID: v.UID, Signalled: signalled, Err: e.err}
		if e.unreaped {
			r.Signalled = time.Time{}
		} else if e.err == nil {
			p.gone()
		}
		if e.err == nil {
			r.Gone, r.Freed = time.Now(), stats.Known(mebi)
		}
		k.results <- r
	})
	return nil
}

func (k *killer) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if shortest, ok := k.graces[uid]; !ok || grace < shortest {
		k.graces[uid] = grace
	}
	if at, due := time.Now().Add(grace), k.sigkill[uid]; due.IsZero() || at.Before(due) {
		k.sigkill[uid] = at
	}
}

// Killed has SIGKILL sent at the end of the grace, or later.
func (k *killer) Killed(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !time.Now().Before(k.sigkill[uid].Add(k.late))
}

func (k *killer) Ended(target kill.Target) bool { return target.(*pod).ended }

func (k *killer) Results() <-chan kill.Result { return k.results }

// reclaimer frees so much of the disk so long after it was asked to; never where
// that is negative.
type reclaimer struct {
	*fixture
	takes     time.Duration
	frees     int64
	reclaimed chan eviction.Signal
}

func (f *reclaimer) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need) {
	f.write("free %d of %v by %v", need.Bytes, s, steps)
	if f.takes < 0 {
		return
	}
	time.AfterFunc(f.takes, func() {
		f.sensor.mu.Lock()
		f.sensor.now.NodeFs.Available = f.sensor.now.NodeFs.Available.Plus(stats.Known(f.frees))
		f.sensor.mu.Unlock()
		f.reclaimed <- s
	})
}

func (f *reclaimer) Reclaimed() <-chan eviction.Signal { return f.reclaimed }

// scanner is complete so long after it was asked for; never where that is
// negative. A round begins a millisecond after the request.
type scanner struct {
	takes time.Duration
	done  chan struct{}

	mu     sync.Mutex
	since  time.Time
	rounds int
}

func (s *scanner) Request() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds++
	if s.takes < 0 {
		return
	}
	begun := time.Now().Add(time.Millisecond)
	time.AfterFunc(s.takes, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.since = begun
		s.done <- struct{}{}
	})
}

func (s *scanner) LastScan() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.since
}

func (s *scanner) Done() <-chan struct{} { return s.done }

func (s *scanner) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds
}
