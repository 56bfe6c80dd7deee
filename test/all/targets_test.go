package main

import (
	"regexp"
	"slices"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestEachTargetThatMeasuresIsMade finds the benchmarks and campaigns of the Makefile by their names. Some take minutes at their smallest,
// and are made by hand: EVICTD_SMALLEST=1 make campaign.
func TestEachTargetThatMeasuresIsMade(t *testing.T) {
	long := []string{"bench", "campaign", "bench-kubelet", "cluster-campaign", "bench-vm", "bench-notices", "bench-ladder", "bench-stall", "vm-campaign"}
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
		if slices.Contains(made, name) == slices.Contains(long, name) {
			t.Errorf("make %s is made by no part and takes no minutes, or both", name)
		}
	}
	if len(all) != len(made)+len(long) {
		t.Errorf("the Makefile has %v", all)
	}
}
