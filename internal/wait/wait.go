// Package wait waits for conditions. It has the one limit of all waits, and keeps
// what a wait looks for in a log. It imports no testing, so that programs wait by it
// too.
package wait

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Limit bounds every wait of a test for something that happens. It is as long as an
// emulated processor or a machine with far too much to do takes; no test asserts how
// fast something happens.
const Limit = 5 * time.Minute

// interval is the time between two checks of a condition.
const interval = 25 * time.Millisecond

// Failer is the part of testing.TB that Until needs.
type Failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Until returns once the condition holds, and fails the test where it does not within
// Limit.
func Until(t Failer, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	if That(ctx, holds) != nil {
		t.Fatalf("waited %v for %s", Limit, what)
	}
}

// That returns once the condition holds, or the error of ctx where that ends before.
func That(ctx context.Context, holds func() bool) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Log is a writer that any goroutine writes to and any goroutine reads.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
