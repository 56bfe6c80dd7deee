package agent

import (
	"github.com/evictd/evictd/internal/wire"
)

// maxHeld bounds what evictd holds of what an agent sends, bytes of messages. A pod takes 1 to 3 KB, a container half of that: there
// is room for 5,000 pods.
const maxHeld = 24 << 20

// budget is what evictd holds of one agent's messages: an API server or a runtime may list without end, and an agent may have been
// taken over.
type budget struct {
	held map[string]int // bytes, by the kind and id of what they are about
	used int
	full bool // something was refused, which was logged
}

func newBudget() *budget { return &budget{held: map[string]int{}} }

// allows says whether a message of a size may be held, and counts it.
func (b *budget) allows(m *wire.FromAgent, size int) bool {
	key := subject(m)
	if m.Deleted != "" || m.Removed != "" {
		size = 0
	}
	now := b.used + size - b.held[key]
	if key == "" || now > maxHeld {
		return key == ""
	}
	b.used = now
	if b.held[key] = size; size == 0 {
		delete(b.held, key)
	}
	return true
}

// subject is the kind and id of what a message is about; "" where nothing of it is held.
func subject(m *wire.FromAgent) string {
	const pod, runtime = "pod ", "runtime "
	switch {
	case m.Pod != nil:
		return pod + string(m.Pod.UID)
	case m.Deleted != "":
		return pod + string(m.Deleted)
	case m.Sandbox != nil:
		return runtime + m.Sandbox.ID
	case m.Container != nil:
		return runtime + m.Container.ID
	case m.Image != nil:
		return runtime + m.Image.ID
	case m.Removed != "":
		return runtime + m.Removed
	case m.Runc != nil:
		return "runc"
	}
	return ""
}
