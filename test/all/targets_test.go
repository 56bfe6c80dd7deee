package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestEachTargetThatMeasuresIsMade finds the benchmarks and campaigns of the Makefile by their names. Those that boot a machine
// take minutes at their smallest, too.
func TestEachTargetThatMeasuresIsMade(t *testing.T) {
	inMachine := []string{"bench-vm", "bench-notices", "bench-ladder", "bench-stall", "vm-campaign"}
	var made, all []string
	for _, p := range parts {
		for _, t := range p.targets {
			made = append(made, t.name)
		}
	}
	rule := regexp.MustCompile(`(?m)^(bench|bench-[a-z]+|campaign|[a-z]+-campaign):`)
	for _, found := range rule.FindAllStringSubmatch(string(require.ReadFile(t, "../../Makefile")), -1) {
		all = append(all, found[1])
	}
	for _, name := range all {
		if slices.Contains(made, name) == slices.Contains(inMachine, name) {
			t.Errorf("make %s is made by no part, and boots no machine", name)
		}
	}
	if len(all) != len(made)+len(inMachine) {
		t.Errorf("the Makefile has %v", all)
	}
}
