// Package docs_test runs the documentation: every command that a page shows, with
// the programs of this tree, and holds what it prints against what is shown.
package docs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// top is the top of the repository.
const top = "../.."

func TestMain(m *testing.M) {
	if os.Getenv(shellVariable) != "" {
		fmt.Fprintln(os.Stderr, becomeShell())
		os.Exit(1)
	}
	os.Exit(harness.Main(m))
}

var build sync.Once

// programs is the directory of all programs of the repository, which are built first.
func programs(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(harness.Base(t), "bin")
	build.Do(func() {
		names, err := filepath.Glob(top + "/cmd/*")
		if err != nil || len(names) == 0 {
			t.Fatalf("no program is found: %v", err)
		}
		for i := range names {
			names[i] = filepath.Base(names[i])
		}
		require.NoError(t, sandbox.Build(dir, names...))
	})
	return dir
}

// pages are the files of the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(top + "/docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no page is found: %v", err)
	}
	return append([]string{filepath.Join(top, "README.md")}, files...)
}

func TestEveryCommandOfTheDocumentationDoesWhatIsShown(t *testing.T) {
	for _, file := range pages(t) {
		text := require.ReadFile(t, file)
		p := readPage(string(text))
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, fault := range p.faults {
				t.Errorf("%s:%s", filepath.Base(file), fault)
			}
			p.logNotRun(t)
			if p.runs() {
				p.run(t, filepath.Base(file))
				golden.Check(t, file, strings.Join(p.lines, "\n"))
			}
		})
	}
}

// logNotRun logs the commands that are not run, by their reasons.
func (p *page) logNotRun(t *testing.T) {
	t.Helper()
	commands := map[string][]string{}
	for _, b := range p.blocks {
		for _, c := range b.commands {
			if reason := b.notRun(c.text); reason != "" {
				commands[reason] = append(commands[reason], c.text)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(commands)) {
		t.Logf("not run: %s:\n%s", reason, strings.Join(commands[reason], "\n"))
	}
}

// runs says whether any command of the page is.
func (p *page) runs() bool {
	return slices.ContainsFunc(p.blocks, func(b block) bool {
		return slices.ContainsFunc(b.commands, func(c command) bool { return b.notRun(c.text) == "" })
	})
}

// run runs the commands of a page in a session, and has the page show what they
// print where that is something else.
func (p *page) run(t *testing.T, name string) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: the documentation's nodes are cgroups, which are made by root")
	}
	if _, err := cgroup.Discover(""); err != nil {
		t.Skip("skipped: no cgroups to use:", err)
	}
	p.needs(t)
	s := newSession(t)
	var shows []shown // from the first line on
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.file != "" {
			if err := os.WriteFile(filepath.Join(s.dir, b.file), []byte(b.text), 0o644); err != nil {
				t.Fatalf("%s:%d: %v", name, b.line, err)
			}
		}
		for _, c := range b.commands {
			if b.notRun(c.text) != "" {
				continue
			}
			printed, right, err := s.try(b, c, p.text(c.print))
			if err != nil {
				t.Fatalf("%s:%d: %v\n$ %s\n%s", name, c.line, err, c.text, printed)
			}
			if !right {
				shows = append(shows, shown{c.print, printed})
			}
		}
	}
	p.show(shows)
}

// foreign are programs that pages use and that are no part of the repository, by the
// packages of Debian that have them.
var foreign = map[string]string{"bash": "bash", "curl": "curl", "mount": "mount", "tmux": "tmux"}

// needs skips a page that a foreign program is missing for.
func (p *page) needs(t *testing.T) {
	t.Helper()
	used := map[string]bool{"bash": true, "mount": true}
	for _, b := range p.blocks {
		for _, c := range b.commands {
			if b.notRun(c.text) == "" {
				used["tmux"] = used["tmux"] || b.terminal
				used["curl"] = used["curl"] || strings.Contains(c.text, "curl ")
			}
		}
	}
	for _, program := range slices.Sorted(maps.Keys(used)) {
		if used[program] {
			harness.Need(t, program, foreign[program])
		}
	}
}

// shown is what lines of the page are to be.
type shown struct {
	at   span
	text string
}

// show puts texts in place of what the page shows.
func (p *page) show(texts []shown) {
	for _, s := range slices.Backward(texts) {
		var lines []string
		indent := ""
		if i := s.at.from - 1; p.indent[i] > 0 {
			indent = tab
		}
		for line := range strings.Lines(strings.Trim(s.text, "\n")) {
			lines = append(lines, strings.TrimRight(indent+strings.TrimRight(line, "\n"), " "))
		}
		p.lines = slices.Replace(p.lines, s.at.from, s.at.end, lines...)
	}
}
