package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func TestATargetIsMadeOnceForAllParts(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("Makefile", []byte("made:\n\t@echo made >>log\nbroken:\n\t@echo broken >>log; exit 1\n.PHONY: made broken\n"), 0o644))
	r := &runner{made: map[string]error{}}
	var parts sync.WaitGroup
	for range 4 {
		parts.Go(func() {
			var out bytes.Buffer
			if err := r.make(t.Context(), []string{"made"}, &out); err != nil {
				t.Errorf("%v\n%s", err, &out)
			}
			if err := r.make(t.Context(), []string{"made", "broken"}, &out); err == nil || !strings.HasPrefix(err.Error(), "make broken: ") {
				t.Errorf("error %v", err)
			}
		})
	}
	parts.Wait()
	if log := string(require.ReadFile(t, filepath.Join(dir, "log"))); log != "made\nbroken\n" {
		t.Errorf("made %q", log)
	}
}
