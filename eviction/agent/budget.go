package agent

import (
	"github.com/evictd/evictd/internal/wire"
)

// maxHeld bounds what evictd holds of what an agent sends, bytes of messages. A pod takes 1 to 3 KB, a container half of that: there
// is room for 5,000 pods.
const maxHeld = 24 << 20

// budget bounds what evictd holds of the messages of one agent. An API server or a runtime may list without end, and an
// attacker may have taken over the agent.
type budget struct {
	held map[string]int // bytes, by the kind and id of the object
	used int
	full bool // something was refused, which was logged
}

func newBudget() *budget { return &budget{held: map[string]int{}} }

// allows counts a message, size in bytes, and says whether evictd may hold it.
func (b *budget) allows(m *wire.FromAgent, size int) bool {
	key, removed := subject(m)
	if removed {
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

// subject is the kind and id of the object that a message is about, by the first field that handle looks at; "" if evictd holds
// nothing of the message. removed: the object does not exist any more.
func subject(m *wire.FromAgent) (key string, removed bool) {
	const pod, runtime = "pod ", "runtime "
	switch {
	case m.Pod != nil && m.Pod.UID != "":
		return pod + string(m.Pod.UID), false
	case m.Deleted != "":
		return pod + string(m.Deleted), true
	case m.Runc != nil:
		return "runc", false
	case m.Sandbox != nil:
		return runtime + m.Sandbox.ID, false
	case m.Container != nil:
		return runtime + m.Container.ID, false
	case m.Image != nil:
		return runtime + m.Image.ID, false
	case m.Removed != "":
		return runtime + m.Removed, true
	}
	return "", false
}
