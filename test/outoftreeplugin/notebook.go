package main

import (
	"context"
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

// isBounded notes that the context of a call in an attempt does not end.
func (n *notebook) isBounded(ctx context.Context, point string) {
	if _, ends := ctx.Deadline(); !ends {
		n.note("the context of %s does not end", point)
	}
}

// read returns the records.
func (n *notebook) read() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}
