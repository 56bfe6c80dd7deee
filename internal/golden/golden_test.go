package golden_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

// watched is a test that keeps the messages of its failures.
type watched struct {
	testing.TB
	said string
}

func (w *watched) Helper()                      {}
func (w *watched) Errorf(f string, args ...any) { w.said = fmt.Sprintf(f, args...) }

func TestAFileThatDiffersFailsTheTestAndIsRewrittenOnDemand(t *testing.T) {
	file := filepath.Join(t.TempDir(), "said.txt")
	t.Setenv("EVICTD_REWRITE", "1")
	golden.Check(t, file, "same\none\n")
	t.Setenv("EVICTD_REWRITE", "")
	golden.Check(t, file, []byte("same\none\n"))
	w := &watched{TB: t}
	golden.Check(w, file, "same\ntwo\n")
	if !strings.Contains(w.said, "from line 2 on; make rewrite and review the diff\ngot:\ntwo\n\nwant:\none\n") {
		t.Errorf("said %q", w.said)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "same\none\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestEveryFileHasATestOfItsName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yaml", "a.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	var seen []string
	golden.Each(t, filepath.Join(dir, "*.yaml"), func(t *testing.T, file string) {
		seen = append(seen, filepath.Base(t.Name()), filepath.Base(golden.Beside(file, ".golden")))
	})
	if got := strings.Join(seen, " "); got != "a a.golden b b.golden" {
		t.Errorf("seen: %s", got)
	}
}

func TestASectionIsOfAFileThatOthersShare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shared.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n<!-- a: generated -->\nold\n<!-- a ends -->\nafter\n"), 0o644))
	t.Setenv("EVICTD_REWRITE", "1")
	golden.Section(t, file, "a", "new\nlines\n")
	t.Setenv("EVICTD_REWRITE", "")
	golden.Section(t, file, "a", "new\nlines\n")
	w := &watched{TB: t}
	golden.Section(w, file, "a", "other\n")
	if !strings.Contains(w.said, "from line 3 on") {
		t.Errorf("said %q", w.said)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "before\n<!-- a: generated -->\nnew\nlines\n<!-- a ends -->\nafter\n" {
		t.Errorf("the file holds %q, %v", text, err)
	}
}
