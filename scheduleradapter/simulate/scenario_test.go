package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter"
)

// TestScenarios simulates each cluster of testdata and compares the output, as
// facts, with the file of the same name. The first line of a scenario is a comment
// with its command line; the path of a configuration is relative to testdata.
func TestScenarios(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		t.Chdir("testdata")
		name := filepath.Base(file)
		golden.Facts(t, golden.Beside(name, ".golden"), output(t, append([]string{"-o", "json"}, commandLine(t, name)...)))
	})
}

// TestJSON compares the JSON output with testdata/json, byte for byte.
func TestJSON(t *testing.T) {
	golden.Each(t, "testdata/json/*.jsonl", func(t *testing.T, file string) {
		t.Chdir("testdata")
		name := filepath.Base(file)
		golden.Check(t, filepath.Join("json", name), output(t, append([]string{"-o", "json"}, commandLine(t, golden.Beside(name, ".yaml"))...)))
	})
}

// TestText compares the text output with testdata/text.
func TestText(t *testing.T) {
	golden.Each(t, "testdata/text/*.txt", func(t *testing.T, file string) {
		t.Chdir("testdata")
		name := filepath.Base(file)
		golden.Check(t, filepath.Join("text", name), output(t, commandLine(t, golden.Beside(name, ".yaml"))))
	})
}

// commandLine is the command line after the word simulate.
func commandLine(t *testing.T, name string) []string {
	t.Helper()
	text := require.ReadFile(t, name)
	first, _, _ := strings.Cut(string(text), "\n")
	words, ok := strings.CutPrefix(first, "# evictd-scheduler simulate ")
	if !ok || !strings.HasSuffix(words, name) {
		t.Fatalf("%s does not begin with its command line", name)
	}
	return strings.Fields(words)
}

// output returns the output; lines of standard error are first, with a "#".
func output(t *testing.T, args []string) []byte {
	t.Helper()
	var out, errs, all bytes.Buffer
	root := scheduleradapter.NewCommand("test")
	root.SetOut(&out)
	root.SetErr(&errs)
	code := scheduleradapter.Execute(context.Background(), root, append([]string{"simulate"}, args...))
	for line := range strings.Lines(errs.String()) {
		fmt.Fprint(&all, "# ", line)
	}
	if code != 0 {
		fmt.Fprintf(&all, "# exit %d\n", code)
	}
	all.Write(out.Bytes())
	return all.Bytes()
}
