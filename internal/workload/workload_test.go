package workload

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// answers are those of a workload to orders.
func answers(w *workload, orders ...string) []string {
	var out bytes.Buffer
	w.obeyAll(strings.NewReader(strings.Join(orders, "\n")), &out)
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func TestAnOrderIsAnsweredByALine(t *testing.T) {
	dir := t.TempDir()
	for order, want := range map[string]string{
		" ":                             "no order",
		"frobnicate 1":                  `no order "frobnicate" of 1 arguments`,
		"hold":                          `no order "hold" of 0 arguments`,
		"hold lots":                     `parsing "lots": invalid syntax`,
		"grow 4Kb":                      `parsing "4Kb": invalid syntax`,
		"leak 1Mi some":                 `parsing "some": invalid syntax`,
		"on INT exit 0":                 `no signal "INT"`,
		"exit soon":                     `parsing "soon": invalid syntax`,
		"exit 0 soon":                   `invalid duration "soon"`,
		"rename kubelet":                "invalid syntax",
		"fork many":                     `parsing "many": invalid syntax`,
		"files " + dir + "/few 2":       "ok",
		"write " + dir + "/much 3Ki":    "ok",
		"unlinked " + dir + "/gone 1Ki": "ok",
		"read " + dir + "/none":         "no such file or directory",
		"work " + dir + "/none " + dir:  "no such file or directory",
	} {
		got := answers(&workload{}, order)
		if len(got) != 1 || want == "ok" && got[0] != want || !strings.Contains(got[0], want) {
			t.Errorf("%q: got %q, want %q", order, got, want)
		}
	}
	if few, err := os.ReadDir(dir + "/few"); err != nil || len(few) != 2 {
		t.Errorf("files: %v, %v", few, err)
	}
	if much, err := os.Stat(dir + "/much"); err != nil || much.Size() != 3<<10 {
		t.Errorf("write: %v, %v", much, err)
	}
	if _, err := os.Stat(dir + "/gone"); !os.IsNotExist(err) {
		t.Errorf("unlinked: %v", err)
	}
}

func TestWorkIsCounted(t *testing.T) {
	file, count := t.TempDir()+"/file", t.TempDir()+"/count"
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o644))
	require.NoError(t, Do("work "+file+" "+count))
	wait.Until(t, "some work", func() bool {
		text, err := os.ReadFile(count)
		n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && n > 3
	})
}

func TestSizesAreBytesOrHaveABinarySuffix(t *testing.T) {
	for text, want := range map[string]int64{"7": 7, "2Ki": 2 << 10, "3Mi": 3 << 20, "1Gi": 1 << 30, "-1Ki": -1 << 10} {
		if got, err := size(text); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestMemoryIsHeldAndGivenBack(t *testing.T) {
	w := &workload{}
	stamps := filepath.Join(t.TempDir(), "stamps")
	for _, step := range []struct {
		order string
		held  int64
	}{{"stamps " + stamps, 0}, {"hold 128Ki", 128 << 10}, {"grow 64Ki", 192 << 10}, {"hold 64Ki", 64 << 10}, {"grow -32Ki", 32 << 10}} {
		if got := answers(w, step.order); got[0] != "ok" || w.held != step.held {
			t.Errorf("%s: %q, holds %d, want %d", step.order, got, w.held, step.held)
		}
	}
	if touched, err := ReadStamps(stamps); err != nil || len(touched) != 192<<10/StampEvery {
		t.Errorf("stamps %v, %v", touched, err)
	}
	answers(w, "leak 0 1Mi")
	wait.Until(t, "the leak to end", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.held == 1<<20
	})
}

func TestASignalCarriesOutItsOrders(t *testing.T) {
	w := &workload{}
	dir := t.TempDir()
	got := answers(w, "on USR1 note "+dir+"/a", "on USR1 note "+dir+"/b", fmt.Sprintf("shell kill -USR1 %d", os.Getpid()))
	if fmt.Sprint(got) != "[ok ok ok]" {
		t.Fatal(got)
	}
	wait.Until(t, "both files", func() bool {
		_, err1 := os.Stat(dir + "/a")
		_, err2 := os.Stat(dir + "/b")
		return err1 == nil && err2 == nil
	})
}
