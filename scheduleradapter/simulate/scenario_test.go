package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/scheduleradapter"
)

// TestScenarios plays the cluster of every file of testdata and holds what the
// program prints against the file beside it; EVICTD_REWRITE=1 writes those files
// anew. The first line of a scenario is a comment with its command line, in which
// a configuration is named as it stands below testdata.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in testdata: %v", err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".yaml"), func(t *testing.T) {
			t.Chdir("testdata")
			base := filepath.Base(name)
			golden(t, strings.TrimSuffix(base, ".yaml")+".jsonl", play(t, append([]string{"-o", "json"}, commandLine(t, base)...)))
		})
	}
}

// TestText holds what people read against the files of testdata/text, each named
// after its scenario.
func TestText(t *testing.T) {
	files, err := filepath.Glob("testdata/text/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing in testdata/text: %v", err)
	}
	for _, name := range files {
		scenario := strings.TrimSuffix(filepath.Base(name), ".txt") + ".yaml"
		t.Run(scenario, func(t *testing.T) {
			t.Chdir("testdata")
			golden(t, filepath.Join("text", filepath.Base(name)), play(t, commandLine(t, scenario)))
		})
	}
}

// commandLine is what the first line of a scenario says after the word simulate.
func commandLine(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	words, ok := strings.CutPrefix(first, "# evictd-scheduler simulate ")
	if !ok || !strings.HasSuffix(words, name) {
		t.Fatalf("%s does not begin with its command line", name)
	}
	return strings.Fields(words)
}

// play is what a run prints: what goes to standard error comes first, each line
// after a "!".
func play(t *testing.T, args []string) []byte {
	t.Helper()
	var out, errs, all bytes.Buffer
	root := scheduleradapter.NewCommand("test")
	root.SetOut(&out)
	root.SetErr(&errs)
	code := scheduleradapter.Execute(context.Background(), root, append([]string{"simulate"}, args...))
	for line := range strings.Lines(errs.String()) {
		fmt.Fprint(&all, "! ", line)
	}
	if code != 0 {
		fmt.Fprintf(&all, "! exit %d\n", code)
	}
	all.Write(out.Bytes())
	return all.Bytes()
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if os.Getenv("EVICTD_REWRITE") == "1" {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; make rewrite and review the diff\ngot:\n%s\nwant:\n%s", name, got, want)
	}
}
