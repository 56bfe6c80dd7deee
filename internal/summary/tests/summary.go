// Package tests reads the output of `go test -json`: a line with the time of each
// package as it ends, the whole output of what failed, and at the end what was
// skipped and why, what failed, and a line of the form "N passed, N failed, N
// skipped".
package tests

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of `go test -json`: a TestEvent of `go doc cmd/test2json`, or
// a BuildEvent of `go help buildjson`, which has an ImportPath and no Package.
type event struct {
	Time        time.Time
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64 // seconds
	Output      string
	FailedBuild string
}

// test is a test, subtest, example or fuzz target.
type test struct {
	output         strings.Builder
	ended          bool
	hasSubtests    bool
	subtestsFailed bool
}

// suite is a package under test.
type suite struct {
	name                    string
	tests                   map[string]*test
	order                   []string // names of tests, as they started
	output                  strings.Builder
	passed, failed, skipped int
}

// summary is the run so far.
type summary struct {
	out      *bufio.Writer
	module   string
	suites   map[string]*suite
	builds   map[string]*strings.Builder // compiler output by import path
	started  time.Time
	ended    time.Time
	reported int // suites that had tests

	untested, failures      []string
	skips                   map[string][]string // tests by reason
	passed, failed, skipped int
}

// Summarize copies a run of `go test -json` from in to out in readable form.
// Import paths lose the prefix module. Lines that are not JSON, which go test
// writes when it cannot start, pass through unchanged.
func Summarize(in io.Reader, out *bufio.Writer, module string) error {
	s := &summary{
		out:    out,
		module: module,
		suites: map[string]*suite{},
		builds: map[string]*strings.Builder{},
		skips:  map[string][]string{},
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read test events: %w", err)
		}
	}
	s.end()
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}

func (s *summary) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		s.out.Write(line)
		return
	}
	if !e.Time.IsZero() {
		if s.started.IsZero() {
			s.started = e.Time
		}
		s.ended = e.Time
	}
	switch {
	case e.Action == "build-output":
		if s.builds[e.ImportPath] == nil {
			s.builds[e.ImportPath] = &strings.Builder{}
		}
		s.builds[e.ImportPath].WriteString(e.Output)
	case e.Package == "":
	case e.Test != "":
		s.suite(e.Package).event(s, e)
	case e.Action == "output":
		s.suite(e.Package).output.WriteString(e.Output)
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		s.close(s.suite(e.Package), e)
	}
}

func (s *summary) suite(pkg string) *suite {
	p := s.suites[pkg]
	if p == nil {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, s.module), "/")
		p = &suite{name: cmp.Or(name, pkg), tests: map[string]*test{}}
		s.suites[pkg] = p
	}
	return p
}

func (p *suite) test(name string) *test {
	t := p.tests[name]
	if t == nil {
		t = &test{}
		p.tests[name] = t
		p.order = append(p.order, name)
	}
	return t
}

// event takes in what a test says. A test with subtests counts only where it
// failed and none of them did: its subtests count in its place.
func (p *suite) event(s *summary, e event) {
	t := p.test(e.Test)
	var parent *test
	if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
		parent = p.test(e.Test[:i])
		parent.hasSubtests = true
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass":
		t.ended = true
		t.output.Reset()
		if !t.hasSubtests {
			p.passed++
		}
	case "skip":
		t.ended = true
		p.skipped++
		reason := reasonOf(t.output.String())
		s.skips[reason] = append(s.skips[reason], p.name+" "+e.Test)
		t.output.Reset()
	case "fail":
		t.ended = true
		if parent != nil {
			parent.subtestsFailed = true
		}
		if !t.subtestsFailed {
			p.failed++
			s.failures = append(s.failures, p.name+" "+e.Test)
		}
	}
}

// close reports a package that ended: one line, and where it failed the output
// of the compiler, of every test that failed or did not end, and of the package.
func (s *summary) close(p *suite, e event) {
	delete(s.suites, e.Package)
	if e.Action == "skip" && len(p.tests) == 0 {
		s.untested = append(s.untested, p.name)
		return
	}
	status := "ok  "
	if e.Action == "fail" {
		status = "FAIL"
		if p.failed == 0 {
			p.failed++
			s.failures = append(s.failures, p.name)
		}
	}
	took := fmt.Sprintf("%.2fs", e.Elapsed)
	if strings.Contains(p.output.String(), "\t(cached)") {
		took = "cached"
	}
	fmt.Fprintf(s.out, "%s %9s  %-32s %s\n", status, took, p.name, counts(p.passed, p.failed, p.skipped))
	if e.Action == "fail" {
		if build := s.builds[e.FailedBuild]; build != nil {
			s.out.WriteString(build.String())
		}
		for _, name := range p.order {
			s.out.WriteString(p.tests[name].output.String())
			if t := p.tests[name]; !t.ended {
				fmt.Fprintf(s.out, "--- %s did not end\n", name)
			}
		}
		s.out.WriteString(p.output.String())
	}
	s.reported++
	s.passed += p.passed
	s.failed += p.failed
	s.skipped += p.skipped
	s.out.Flush()
}

// end writes what the whole run came to. A package that never ended failed.
func (s *summary) end() {
	for _, pkg := range slices.Sorted(maps.Keys(s.suites)) {
		s.close(s.suites[pkg], event{Action: "fail", Package: pkg})
	}
	if len(s.untested) > 0 {
		fmt.Fprintf(s.out, "\nwithout tests: %s\n", strings.Join(s.untested, ", "))
	}
	if len(s.skips) > 0 {
		fmt.Fprintln(s.out, "\nskipped:")
		for _, reason := range slices.Sorted(maps.Keys(s.skips)) {
			fmt.Fprintf(s.out, "  %s\n", reason)
			for _, name := range slices.Sorted(slices.Values(s.skips[reason])) {
				fmt.Fprintf(s.out, "    %s\n", name)
			}
		}
	}
	if len(s.failures) > 0 {
		fmt.Fprintln(s.out, "\nfailed:")
		for _, name := range s.failures {
			fmt.Fprintf(s.out, "  %s\n", name)
		}
	}
	fmt.Fprintf(s.out, "\n%d suites in %s\n", s.reported, s.ended.Sub(s.started).Round(100*time.Millisecond))
	fmt.Fprintln(s.out, counts(s.passed, s.failed, s.skipped))
}

func counts(passed, failed, skipped int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

// logged is a line that testing.T.Log and its kin wrote.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)$`)

// reasonOf is the last thing a test logged before it was skipped; a reason of
// several lines becomes one.
func reasonOf(output string) string {
	var reason []string
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\n")
		if found := logged.FindStringSubmatch(line); found != nil {
			reason = []string{found[1]}
		} else if len(reason) > 0 && strings.HasPrefix(line, "        ") {
			reason = append(reason, strings.TrimSpace(line))
		}
	}
	return cmp.Or(strings.Join(reason, " "), "no reason given")
}
