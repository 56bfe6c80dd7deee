package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/test/controlplane/scheduler"
)

// report is the part of Ginkgo's JSON report that the table shows.
type report struct {
	SpecReports []spec
	counts      scheduler.Counts // of the column's scheduler, after the last spec
}

// spec is a spec as it ran in a suite.
type spec struct {
	ContainerHierarchyTexts  []string
	ContainerHierarchyLabels [][]string
	LeafNodeType             string
	LeafNodeText             string
	LeafNodeLabels           []string
	State                    string
	RunTime                  time.Duration
	Failure                  struct{ Message string }
}

// The states of a spec that count.
const (
	passed  = "passed"
	skipped = "skipped"
)

func (s *spec) labels() []string {
	return append(slices.Concat(s.ContainerHierarchyLabels...), s.LeafNodeLabels...)
}

// name is the text of the spec, which names its labels in brackets.
func (s *spec) name() string {
	return strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
}

// short is the name without labels; [DRA] stays, for other specs begin with the
// component.
func (s *spec) short() string {
	name := s.name()
	for _, label := range s.labels() {
		if label != "DRA" {
			name = strings.ReplaceAll(name, "["+label+"]", "")
		}
	}
	return strings.Join(strings.Fields(name), " ")
}

// ran says whether the spec ran, and did not skip itself.
func (s *spec) ran() bool { return s.State != skipped || s.Failure.Message != "" }

// conformance is the label of the specs that every cluster must pass, and what the table
// calls them.
const conformance = "Conformance"

// row is a spec by each column that ran it. Its kind is conformance or the name of its suite.
type row struct {
	spec, suite, kind string
	by                map[string]spec
}

// table are the rows of the specs that ran, and the specs that did not, by name.
type table struct {
	rows map[string]row
	left map[string]left
	// attempts are those of the schedulers by their result, of each suite and column.
	attempts map[[2]string]map[string]int
}

// left is a spec that did not run, and why.
type left struct{ spec, reason string }

// merge adds the specs of a suite, as they ran by a column.
func (t *table) merge(suite, by string, r report) {
	for _, s := range r.SpecReports {
		if s.LeafNodeType == "It" {
			t.put(suite, by, s)
		}
	}
	t.attempts[[2]string{suite, by}] = r.counts.Results
}

func (t *table) put(suite, by string, s spec) {
	name := s.name()
	r, known := t.rows[name]
	switch {
	case s.ran() && !known:
		r = row{s.short(), suite, suite, map[string]spec{}}
		if slices.Contains(s.labels(), conformance) {
			r.kind = conformance
		}
		t.rows[name] = r
		delete(t.left, name)
		fallthrough
	case s.ran():
		r.by[by] = s
	case !known:
		if reason := s.reason(suite); reason != "" {
			t.left[name] = left{s.short(), reason}
		}
	}
}

// reason says why a spec did not run in a suite; it is empty where the suite is not for it, or
// -specs left it out.
func (s *spec) reason(suite string) string {
	labels, name := s.labels(), s.name()
	ofScheduling := slices.Contains(labels, "sig-scheduling") || slices.Contains(labels, "DRA")
	ofAPI := suite == apiSuite && slices.Contains(labels, conformance)
	for _, r := range reasons {
		if r.text == nil && ofScheduling && slices.Contains(labels, r.label) || r.text != nil && ofAPI && r.text.MatchString(name) {
			return r.reason
		}
	}
	return ""
}

// write writes the table and returns whether a column fails a spec that the first passes.
func (t *table) write(out io.Writer) (differ bool) {
	rows := slices.SortedFunc(maps.Values(t.rows), func(a, b row) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.spec, b.spec))
	})
	fmt.Fprint(out, "| | spec |")
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.name)
	}
	fmt.Fprintf(out, " seconds |\n|---|---|%s--:|\n", strings.Repeat("---|", len(columns)))
	for _, r := range rows {
		fmt.Fprintf(out, "| %s | %s |", r.kind, r.spec)
		var seconds []string
		for _, c := range columns {
			s, ran := r.by[c.name]
			fmt.Fprintf(out, " %s |", s.State)
			if ran {
				seconds = append(seconds, fmt.Sprintf("%.0f", s.RunTime.Seconds()))
			}
			differ = differ || ran && s.State != passed && r.by[columns[0].name].State == passed
		}
		fmt.Fprintf(out, " %s |\n", strings.Join(seconds, ", "))
	}
	fmt.Fprintln(out)
	t.writeCounts(out)
	writeFailures(out, rows)
	t.writeLeft(out)
	return differ
}

// writeCounts writes how many specs of each suite pass in each column, and what its scheduler
// tried.
func (t *table) writeCounts(out io.Writer) {
	fmt.Fprint(out, "| suite | by | passed | of them conformance | attempts scheduled | unschedulable | error |\n|---|---|--:|--:|--:|--:|--:|\n")
	for _, s := range suites {
		for _, c := range columns {
			attempts, ran := t.attempts[[2]string{s.name, c.name}]
			if !ran {
				continue
			}
			specs, conformant := t.count(s, c, ""), t.count(s, c, conformance)
			fmt.Fprintf(out, "| %s | %s | %s | %s | %d | %d | %d |\n", s.name, c.name, specs, conformant, attempts["scheduled"], attempts["unschedulable"], attempts["error"])
		}
	}
}

// count counts the specs of a suite and kind, any where it is empty, that pass in a column.
func (t *table) count(s suite, c column, kind string) string {
	passes, all := 0, 0
	for _, r := range t.rows {
		if spec, ran := r.by[c.name]; ran && r.suite == s.name && (kind == "" || r.kind == kind) {
			all++
			if spec.State == passed {
				passes++
			}
		}
	}
	return fmt.Sprintf("%d of %d", passes, all)
}

// writeFailures writes why specs failed or skipped themselves.
func writeFailures(out io.Writer, rows []row) {
	for _, r := range rows {
		for _, c := range columns {
			if s, ran := r.by[c.name]; ran && s.State != passed {
				message := strings.Join(strings.Fields(s.Failure.Message), " ")
				fmt.Fprintf(out, "\n%s by %s: %s: %.300s\n", s.State, c.name, r.spec, message)
			}
		}
	}
}

// writeLeft writes the specs that did not run, below their reasons.
func (t *table) writeLeft(out io.Writer) {
	names := map[string][]string{}
	for _, s := range t.left {
		names[s.reason] = append(names[s.reason], s.spec)
	}
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(out, "\n%d specs do not run here: %s\n", len(names[reason]), reason)
		for _, name := range slices.Sorted(slices.Values(names[reason])) {
			fmt.Fprintln(out, " ", name)
		}
	}
}
