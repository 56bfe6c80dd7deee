// Package benchmarks runs the benchmarks and campaigns of the Makefile at their smallest, so that each of them works when it is needed.
package benchmarks

import (
	"regexp"
	"slices"
	"strings"
)

// ElsewhereVariable has the names of the targets that another part of test/all runs, separated by spaces.
const ElsewhereVariable = "EVICTD_BENCHMARKS_ELSEWHERE"

// Rule is a rule of a Makefile.
type Rule struct {
	Target string
	Needs  []string // prerequisites, by name
	Recipe string
}

// Measures reports whether the target is a benchmark or a campaign, by its name.
func (r *Rule) Measures() bool {
	return strings.HasPrefix(r.Target+"-", "bench-") || strings.HasSuffix("-"+r.Target, "-campaign")
}

// header is the first line of a rule with one target: not of a pattern, nor of a variable of a target.
var header = regexp.MustCompile(`^([a-z][a-z0-9-]*):($|\s[^=#]*)(?:$|#)`)

// Rules reads the rules of a Makefile in their order.
func Rules(makefile string) (rules []Rule) {
	for line := range strings.Lines(makefile) {
		if h := header.FindStringSubmatch(strings.TrimRight(line, "\n")); h != nil {
			rules = append(rules, Rule{Target: h[1], Needs: strings.Fields(h[2])})
		} else if last := len(rules) - 1; last >= 0 && strings.HasPrefix(line, "\t") {
			rules[last].Recipe += line
		}
	}
	return rules
}

// Needs are the prerequisites of a target and theirs, by name.
func Needs(rules []Rule, target string) (all []string) {
	for i := range rules {
		if rules[i].Target == target {
			for _, need := range rules[i].Needs {
				all = append(append(all, need), Needs(rules, need)...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
