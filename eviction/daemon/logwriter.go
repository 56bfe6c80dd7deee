package daemon

import (
	"fmt"
	"io"
	"slices"
	"time"
)

const (
	// backlogLines bounds the lines that wait.
	backlogLines = 1024
	// backlogPatience is how long Close waits for a log that blocks.
	backlogPatience = time.Second
)

// LogWriter writes log lines in a goroutine of its own, so that a log which blocks delays
// neither sensing nor killing. At most backlogLines lines wait; of those beyond it only
// their number is logged.
type LogWriter struct {
	lines chan []byte
	lost  chan int // the number of lines lost since the last report
	stop  chan struct{}
	done  chan struct{}
}

// NewLogWriter starts the goroutine; Close ends it.
func NewLogWriter(out io.Writer) *LogWriter {
	b := &LogWriter{
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
			default: // every waiting line is written before the end
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

func (b *LogWriter) put(out io.Writer, line []byte) {
	_, _ = out.Write(line)
	select {
	case n := <-b.lost:
		fmt.Fprintf(out, "level=WARN msg=\"the log blocked and lines were lost\" lost=%d\n", n)
	default:
	}
}

// Write implements io.Writer. It never waits; slog calls it for one line at a
// time.
func (b *LogWriter) Write(line []byte) (int, error) {
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

// Close waits until the lines are written, at most backlogPatience.
func (b *LogWriter) Close() {
	close(b.stop)
	select {
	case <-b.done:
	case <-time.After(backlogPatience):
	}
}
