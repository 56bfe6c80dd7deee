package main

import (
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	// backlogLines bounds the lines that wait for a log that does not take them.
	backlogLines = 1024
	// backlogPatience is how long the end waits for such a log.
	backlogPatience = time.Second
)

// backlog is a log that nobody waits for: lines are written by a goroutine of its
// own, and where too many wait the newest are lost, which the log is told. A
// journal that is stuck holds up neither sensing nor killing.
type backlog struct {
	lines chan []byte
	lost  chan int // holds how many were lost since it was told
	stop  chan struct{}
	done  chan struct{}
}

func newBacklog(out io.Writer) *backlog {
	b := &backlog{
		lines: make(chan []byte, backlogLines), lost: make(chan int, 1),
		stop: make(chan struct{}), done: make(chan struct{}),
	}
	go func() {
		defer close(b.done)
		for {
			select {
			case line := <-b.lines:
				b.put(out, line)
				continue
			default: // all that was written goes out before the end
			}
			select {
			case line := <-b.lines:
				b.put(out, line)
			case <-b.stop:
				return
			}
		}
	}()
	return b
}

func (b *backlog) put(out io.Writer, line []byte) {
	_, _ = out.Write(line) // there is nobody to tell
	select {
	case n := <-b.lost:
		fmt.Fprintf(out, "level=WARN msg=\"the log did not take its lines in time\" lost=%d\n", n)
	default:
	}
}

// Write implements io.Writer. It never waits; slog calls it for one line at a
// time.
func (b *backlog) Write(line []byte) (int, error) {
	select {
	case b.lines <- slices.Clone(line):
	default:
		n := 1
		select {
		case before := <-b.lost:
			n += before
		default:
		}
		b.lost <- n
	}
	return len(line), nil
}

// close waits for what was written to go out, but not for long.
func (b *backlog) close() {
	close(b.stop)
	select {
	case <-b.done:
	case <-time.After(backlogPatience):
	}
}
