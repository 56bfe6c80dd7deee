package agent

import "github.com/evictd/evictd/internal/wire"

// Bare are the containers that runc runs, as last heard of. The slice does not
// change later.
func (a *Agent) Bare() []wire.Bare {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bare
}

// OutOfMemory counts the kernel's notices of bare containers that were out of
// memory, since the start.
func (a *Agent) OutOfMemory() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ooms
}

// hearBare is called with the lock held.
func (a *Agent) hearBare(m *wire.Up) {
	switch {
	case m.Bare != nil:
		a.bare = m.Bare.Containers
		a.signal()
	case m.OutOfMemory != nil:
		a.ooms++
		a.log.Warn("a container has reached its memory limit, and the kernel has killed in it", "container", m.OutOfMemory.Container, "at", m.OutOfMemory.At)
	}
}
