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
	counts      scheduler.Counts // of the scheduler, after the last spec
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

// reasons why specs do not run here, by their labels; the first that fits.
var reasons = []struct{ label, reason string }{
	{"Feature:DynamicResourceAllocation", "they run pods of a device driver, whose plugin a real kubelet calls; hollow nodes run no process"},
	{"Alpha", "their feature is alpha and off by default"},
	{"Flaky", "upstream calls them flaky"},
}

// conformance is the label of the specs that every cluster must pass, and what the table
// calls them.
const conformance = "Conformance"

// row is a spec by either scheduler. Its kind is conformance or the name of its suite.
type row struct {
	spec, kind string
	by         map[string]spec
}

// table are the rows of the specs that ran, and the specs that did not, by name.
type table struct {
	rows map[string]row
	left map[string]spec
	// attempts are lines of the schedulers' attempts.
	attempts []string
}

// merge adds the specs of a suite, as they ran by a scheduler.
func (t *table) merge(suite, by string, r report) {
	for _, s := range r.SpecReports {
		if s.LeafNodeType == "It" {
			t.put(suite, by, s)
		}
	}
	results := r.counts.Results
	t.attempts = append(t.attempts, fmt.Sprintf("| %s | %s | %d | %d | %d |", suite, by, results["scheduled"], results["unschedulable"], results["error"]))
}

func (t *table) put(suite, by string, s spec) {
	name := s.name()
	r, known := t.rows[name]
	switch {
	case s.ran() && !known:
		r = row{s.short(), suite, map[string]spec{}}
		if slices.Contains(s.labels(), conformance) {
			r.kind = conformance
		}
		t.rows[name] = r
		delete(t.left, name)
		fallthrough
	case s.ran():
		r.by[by] = s
	case !known:
		t.left[name] = s
	}
}

// reason says why a spec did not run; it is empty where -specs left it out.
func (s *spec) reason() string {
	for _, r := range reasons {
		if slices.Contains(s.labels(), r.label) {
			return r.reason
		}
	}
	return ""
}

// write writes the table and returns whether evictd-scheduler fails a spec that
// kube-scheduler passes.
func (t *table) write(out io.Writer) (differ bool) {
	rows := slices.SortedFunc(maps.Values(t.rows), func(a, b row) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.spec, b.spec))
	})
	fmt.Fprintf(out, "| | spec | %s | %s | seconds |\n|---|---|---|---|--:|\n", scheduler.Kube, scheduler.Evictd)
	for _, r := range rows {
		kube, evictd := r.by[scheduler.Kube], r.by[scheduler.Evictd]
		fmt.Fprintf(out, "| %s | %s | %s | %s | %.0f, %.0f |\n", r.kind, r.spec, kube.State, evictd.State, kube.RunTime.Seconds(), evictd.RunTime.Seconds())
		differ = differ || kube.State == passed && evictd.State != passed
	}
	fmt.Fprintln(out)
	for _, by := range schedulers {
		ok, all := count(rows, by, func(row) bool { return true })
		okConformance, allConformance := count(rows, by, func(r row) bool { return r.kind == conformance })
		fmt.Fprintf(out, "%s passes %d of %d specs, %d of %d that are conformance.\n", by, ok, all, okConformance, allConformance)
	}
	fmt.Fprintf(out, "\n| attempts | by | scheduled | unschedulable | error |\n|---|---|--:|--:|--:|\n%s\n", strings.Join(t.attempts, "\n"))
	writeFailures(out, rows)
	t.writeLeft(out)
	return differ
}

// count counts the specs that a scheduler passes, and all, among those that are wanted.
func count(rows []row, by string, wanted func(row) bool) (ok, all int) {
	for _, r := range rows {
		if wanted(r) {
			all++
			if r.by[by].State == passed {
				ok++
			}
		}
	}
	return ok, all
}

// writeFailures writes why specs failed or skipped themselves.
func writeFailures(out io.Writer, rows []row) {
	for _, r := range rows {
		for _, by := range schedulers {
			if s := r.by[by]; s.State != passed {
				message := strings.Join(strings.Fields(s.Failure.Message), " ")
				fmt.Fprintf(out, "\n%s by %s: %s: %.300s\n", s.State, by, r.spec, message)
			}
		}
	}
}

// writeLeft writes the specs that did not run, below their reasons.
func (t *table) writeLeft(out io.Writer) {
	names := map[string][]string{}
	for _, s := range t.left {
		names[s.reason()] = append(names[s.reason()], s.short())
	}
	delete(names, "")
	for _, reason := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(out, "\n%d specs do not run here: %s\n", len(names[reason]), reason)
		for _, name := range slices.Sorted(slices.Values(names[reason])) {
			fmt.Fprintln(out, " ", name)
		}
	}
}
