package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/scheduleradapter"
)

// TestScenarios plays the cluster of every file of testdata and holds what the
// program prints against the file beside it. The first line of a scenario is a comment with its command line, in which
// a configuration is named as it stands below testdata.
func TestScenarios(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		t.Chdir("testdata")
		name := filepath.Base(file)
		golden.Check(t, golden.Beside(name, ".jsonl"), play(t, append([]string{"-o", "json"}, commandLine(t, name)...)))
	})
}

// TestText holds what people read against the files of testdata/text, each named
// after its scenario.
func TestText(t *testing.T) {
	golden.Each(t, "testdata/text/*.txt", func(t *testing.T, file string) {
		t.Chdir("testdata")
		name := filepath.Base(file)
		golden.Check(t, filepath.Join("text", name), play(t, commandLine(t, golden.Beside(name, ".yaml"))))
	})
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
