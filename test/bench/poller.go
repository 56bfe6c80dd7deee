package main

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// pollEvery is the kubelet's interval (kubelet 1.37, evictionMonitoringPeriod).
const pollEvery = 10 * time.Second

// poller has the kubelet's rules, by evictd's own core, and looks every ten
// seconds. It kills by SIGKILL at once, which the kubelet does not.
type poller struct {
	node    *node
	victim  atomic.Pointer[pod]
	killed  atomic.Int64
	end     context.CancelFunc
	running sync.WaitGroup
}

func (p *poller) name() string { return "10 s poller" }

func (p *poller) start(n *node) error {
	ctx, end := context.WithCancel(context.Background())
	p.node, p.end = n, end
	p.running.Go(func() { p.run(ctx) })
	return nil
}

func (p *poller) stop() {
	if p.end != nil {
		p.end()
		p.running.Wait()
	}
}

func (p *poller) run(ctx context.Context) {
	cfg := eviction.New(eviction.Config{
		Thresholds:               []eviction.Threshold{{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: int64(p.node.threshold) * mib}}},
		PressureTransitionPeriod: time.Second,
	}, eviction.SharedFs)
	memory := int64(p.node.memory) * mib
	var state eviction.State
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		victim := p.victim.Load()
		available, err := p.node.available()
		if victim == nil || err != nil {
			continue
		}
		in := eviction.Input{Now: time.Now(), Sampled: true, Candidates: []eviction.Candidate{{
			Pod: eviction.Digest(victim.Pod), Usage: &stats.Pod{Memory: stats.Known(memory - available)},
		}}}
		for i := range state.InFlight {
			in.Outcomes = append(in.Outcomes, eviction.Outcome{UID: state.InFlight[i].UID})
		}
		in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available), Capacity: stats.Known(memory), Time: in.Now}
		var d eviction.Decision
		if state, d = eviction.Decide(&cfg, state, in); len(d.Evictions) > 0 {
			p.killed.Store(monotonic())
			_ = unix.Kill(victim.process.Process.Pid, unix.SIGKILL)
		}
	}
}

// expect begins the run at any moment between two looks.
func (p *poller) expect(ctx context.Context, filler *pod) error {
	p.victim.Store(filler)
	select {
	case <-time.After(rand.N(pollEvery)):
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (p *poller) signalled(*pod) (int64, error) { return p.killed.Load(), nil }

func (p *poller) wrap(fill []string) *exec.Cmd { return self("fill", fill...) }

func (p *poller) ended(*pod) string { return "" }
