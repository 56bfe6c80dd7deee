package collect

import (
	"log/slog"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// waitState finds the state of the goroutine that waits by a MemoryNotifier in a trace of all:
// "syscall" is a thread blocked in the kernel, "IO wait" a goroutine that a thread of Go's
// runtime has to wake first.
var waitState = regexp.MustCompile(`goroutine \d+ \[([^],]*), [^]]*locked to thread\]:\n([^\n]+\n)*[^\n]*MemoryNotifier\)\.Wait`)

func TestNearAThresholdTheKernelWakesTheThreadOfTheLoopItself(t *testing.T) {
	const threshold = 4 << 30
	for name, c := range map[string]struct {
		left  int64
		state string
	}{
		"near":                 {nearby - 1, "syscall"},
		"beyond the threshold": {-1, "syscall"},
		"far":                  {nearby, "IO wait"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := NewMemoryNotifier(NodeConfig{}, true, slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			defer w.Close()
			ended := make(chan struct{})
			defer func() { <-ended }()
			defer w.Wake()
			go func() {
				defer close(ended)
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				w.SetLevels(MemoryLevels{1: {Usage: stats.Known(threshold - c.left), Threshold: stats.Known(threshold)}})
				w.Wait(time.Hour)
			}()
			trace := make([]byte, 1<<20)
			awaitThat(t, "the goroutine to wait in state "+c.state, func() bool {
				found := waitState.FindSubmatch(trace[:runtime.Stack(trace, true)])
				return found != nil && string(found[1]) == c.state
			})
		})
	}
}
