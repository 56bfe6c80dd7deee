package main

import (
	"os"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

func TestForeignProgramsAreMadeInOrderWhetherOrNotThoseBeforeFailed(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("Makefile", []byte("one two:\n\t@echo $@\nbroken:\n\t@echo $@; exit 1\n"), 0o644))
	foreign := buildForeign(t.Context(), []part{{foreign: []string{"one"}}, {}, {foreign: []string{"broken"}}, {foreign: []string{"two"}}})
	for _, want := range []string{"one\n", "", "broken\n", "two\n"} {
		m := <-foreign
		if got := string(m.output); len(got) < len(want) || got[:len(want)] != want || (m.err != nil) != (want == "broken\n") {
			t.Errorf("made %q, %v; want %q", got, m.err, want)
		}
	}
}
