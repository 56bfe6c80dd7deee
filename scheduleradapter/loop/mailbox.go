package loop

import "sync"

// mailbox holds what is to be done on the loop's goroutine, in order. Posting
// never blocks: whoever watches the API server must not be held up.
type mailbox struct {
	mu     sync.Mutex
	posted []func()
	spare  []func()
	signal chan struct{} // holds one token while something is posted
}

func newMailbox() *mailbox { return &mailbox{signal: make(chan struct{}, 1)} }

func (m *mailbox) post(do func()) {
	m.mu.Lock()
	m.posted = append(m.posted, do)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// empty does all that is there, and says whether there was anything.
func (m *mailbox) empty() bool {
	m.mu.Lock()
	all := m.posted
	m.posted = m.spare[:0]
	m.mu.Unlock()
	for _, do := range all {
		do()
	}
	clear(all)
	m.mu.Lock()
	m.spare = all
	m.mu.Unlock()
	return len(all) > 0
}
