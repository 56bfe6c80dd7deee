package daemon

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// blockedWriter is a writer that takes nothing until it is freed.
type blockedWriter struct {
	strings.Builder
	freed chan struct{}
}

func (s *blockedWriter) Write(p []byte) (int, error) {
	<-s.freed
	return s.Builder.Write(p)
}

func TestALogThatBlocksDelaysNothingAndGetsACountOfWhatItMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &blockedWriter{freed: make(chan struct{})}
		b := NewLogWriter(out)
		fmt.Fprintln(b, "first")
		synctest.Wait() // it is being written
		for i := range backlogLines + 7 {
			fmt.Fprintln(b, "line", i)
		}
		close(out.freed)
		b.Close()
		if text := out.String(); !strings.HasPrefix(text, "first\nlevel=WARN") || !strings.Contains(text, "lost=7\n") || !strings.HasSuffix(text, fmt.Sprintf("line %d\n", backlogLines-1)) {
			t.Errorf("%.200s ... %.200s", text, text[max(0, len(text)-200):])
		}
	})
}

func TestTheEndWaitsForTheLogButNotForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &blockedWriter{freed: make(chan struct{})}
		b := NewLogWriter(out)
		_, _ = io.WriteString(b, "last words\n")
		began := time.Now()
		b.Close()
		if waited := time.Since(began); waited != backlogPatience {
			t.Errorf("waited %v", waited)
		}
		close(out.freed)
	})
}
