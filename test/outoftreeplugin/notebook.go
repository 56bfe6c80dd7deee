package main

import (
	"fmt"
	"slices"
	"sync"
)

// notebook records calls in order. Any goroutine may write.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) note(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

// read returns the records.
func (n *notebook) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}
