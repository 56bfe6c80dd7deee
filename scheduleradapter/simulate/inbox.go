package simulate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// inbox is what others want done by the goroutine that owns the simulation.
type inbox struct {
	mu    sync.Mutex
	todo  []func()
	ready chan struct{}
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

// add puts a function at the end. Any goroutine may.
func (i *inbox) add(f func()) {
	i.mu.Lock()
	i.todo = append(i.todo, f)
	i.mu.Unlock()
	select {
	case i.ready <- struct{}{}:
	default:
	}
}

// drain does what is there, and what that leads to.
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

// await runs a function beside the owner, which meanwhile does what that function
// may wait for.
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

// plugins do to the simulation what they ask for through their handle.
type plugins struct{ s *Simulation }

// Activate makes pods active, whatever they wait for.
func (p *plugins) Activate(pods ...types.UID) { p.s.Queue.Activate(p.s.now, pods...) }

// Allow gives a plugin's permission; after the last one the pod is bound, soon.
func (p *plugins) Allow(pod types.UID, plugin string) {
	if a := p.s.Scheduler.Allow(pod, plugin); a != nil {
		p.s.permitted = append(p.s.permitted, a)
	}
}

// Reject ends the wait of a pod.
func (p *plugins) Reject(pod types.UID, status framework.Status) { p.s.Reject(p.s.now, pod, status) }
