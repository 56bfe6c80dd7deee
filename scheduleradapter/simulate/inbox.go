package simulate

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// drain calls the functions that plugins post until there are none.
func (s *Simulation) drain() {
	for s.calls.Run() {
	}
}

// await calls a function on another goroutine, and posted functions until it returns.
func (s *Simulation) await(f func() framework.Status) framework.Status {
	done := make(chan framework.Status, 1)
	go func() { done <- f() }()
	for {
		select {
		case s := <-done:
			return s
		case <-s.calls.Signal:
			s.drain()
		}
	}
}

// plugins implements outoftree.PodActions.
type plugins struct{ s *Simulation }

func (p *plugins) Activate(pods ...types.UID) { p.s.Queue.Activate(p.s.now, pods...) }

// Allow records that a plugin allows a waiting pod, and queues its binding cycle.
func (p *plugins) Allow(pod types.UID, plugin string) {
	if a := p.s.Scheduler.Allow(pod, plugin); a != nil {
		p.s.permitted = append(p.s.permitted, a)
	}
}

func (p *plugins) Reject(pod types.UID, status framework.Status) { p.s.Reject(p.s.now, pod, status) }
