package simulate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// inbox has the functions that are posted to the simulation's goroutine.
type inbox struct {
	mu    sync.Mutex
	todo  []func()
	ready chan struct{}
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// add posts a function. Any goroutine may call it.
func (i *inbox) add(f func()) {
	i.mu.Lock()
	i.todo = append(i.todo, f)
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// drain calls the posted functions until there are none.
func (i *inbox) drain() {
	for {
		i.mu.Lock()
		todo := i.todo
		i.todo = nil
		i.mu.Unlock()
		if len(todo) == 0 {
			return
		}
		for _, do := range todo {
			do()
		}
	}
}

// await calls a function on another goroutine, and calls posted functions until it
// returns.
func (i *inbox) await(f func() framework.Status) framework.Status {
	done := make(chan framework.Status, 1)
	go func() { done <- f() }()
	for {
		select {
		case s := <-done:
			return s
		case <-i.ready:
			i.drain()
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
