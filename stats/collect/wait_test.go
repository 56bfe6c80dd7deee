package collect

import (
	"fmt"
	"log/slog"
	"regexp"
	"runtime"
	"testing"
	"time"

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
			if err != nil {
				t.Fatal(err)
			}
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

func TestNearbyIsReportedWhenItChanges(t *testing.T) {
	w, err := NewMemoryNotifier(NodeConfig{}, true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, c := range []struct {
		left int64
		want string
	}{
		{nearby, ""}, {nearby - 1, "true"}, {0, ""}, {nearby + halfway - 1, ""}, {nearby + halfway, "false"}, {nearby, ""},
	} {
		w.SetLevels(MemoryLevels{{Usage: stats.Known(1 << 40), Threshold: stats.Known(1<<40 + c.left)}})
		reported := ""
		select {
		case now := <-w.Nearby():
			reported = fmt.Sprint(now)
		default:
		}
		if reported != c.want {
			t.Errorf("%d bytes left: reported %q, want %q", c.left, reported, c.want)
		}
	}
}
