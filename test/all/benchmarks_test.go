package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/benchmarks"
)

const root = "../.."

func readRules(t *testing.T) []benchmarks.Rule {
	t.Helper()
	return benchmarks.Rules(string(require.ReadFile(t, filepath.Join(root, "Makefile"))))
}

// The part benchmarks makes every target that measures, but those that other parts name.
func TestEveryBenchmarkOfTheMakefileRunsInOnePart(t *testing.T) {
	var named []string
	for _, p := range parts {
		named = append(named, p.targets...)
	}
	if !slices.ContainsFunc(parts, func(p part) bool { return slices.Contains(p.packages, "./test/benchmarks") }) {
		t.Error("no part runs ./test/benchmarks")
	}
	var measure []string
	for _, r := range readRules(t) {
		measures := regexp.MustCompile(`EVICTD_CAMPAIGN=1|-bench |/bench |TestCampaign`).MatchString(r.Recipe)
		switch {
		case r.Measures():
			measure = append(measure, r.Target)
		case measures && r.Target != "race":
			t.Errorf("%s measures: expected a name that begins with bench- or ends with -campaign", r.Target)
		}
	}
	for i, target := range named {
		if !slices.Contains(measure, target) {
			t.Errorf("a part has the target %s, which the Makefile does not have", target)
		}
		if slices.Contains(named[:i], target) {
			t.Errorf("%s is named twice", target)
		}
	}
	for _, target := range []string{"bench", "bench-reaction", "campaign"} {
		if !slices.Contains(measure, target) || slices.Contains(named, target) {
			t.Errorf("the part benchmarks does not run %s", target)
		}
	}
}

var (
	campaignTest = regexp.MustCompile(`(?m)^func (TestCampaign\w*)\(`)
	selected     = regexp.MustCompile(`-run '(\S+)'\s+(\S+)`)
)

// make campaign runs the campaigns of the main module, all of them.
func TestEveryCampaignOfAnotherModuleHasATarget(t *testing.T) {
	rules, found := readRules(t), 0
	require.NoError(t, filepath.WalkDir(filepath.Join(root, "test"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || !nested(filepath.Dir(path)) {
			return err
		}
		for _, match := range campaignTest.FindAllStringSubmatch(string(require.ReadFile(t, path)), -1) {
			found++
			if !slices.ContainsFunc(rules, func(r benchmarks.Rule) bool {
				run := selected.FindStringSubmatch(strings.ReplaceAll(r.Recipe, "$$", "$"))
				return r.Measures() && run != nil && filepath.Base(filepath.Dir(path)) == filepath.Base(run[2]) && regexp.MustCompile(run[1]).MatchString(match[1])
			}) {
				t.Errorf("%s: no target of the Makefile runs %s", path, match[1])
			}
		}
		return nil
	}))
	if found == 0 {
		t.Error("no campaign is found")
	}
}

// nested reports whether a directory belongs to another module than the main one.
func nested(dir string) bool {
	for ; filepath.Clean(dir) != root; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return true
		}
	}
	return false
}
