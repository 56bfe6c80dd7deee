package agent

import "github.com/evictd/evictd/internal/wire"

// Bare are the containers that runc runs, as last heard of. The slice does not
// change later.
func (a *Agent) Bare() []wire.Bare {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bare
}
