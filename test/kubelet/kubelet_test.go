// Package kubelet_test compares evictd's decisions with those of the kubelet's eviction manager on
// random nodes. The kubelet's is in a program of its own, test/controlplane/parts/cmd/kubelet-eviction.
package kubelet_test

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
)

func TestRandomScenarios(t *testing.T) { compareScenarios(t, 0, 200) }

func TestCampaignRandomScenarios(t *testing.T) {
	campaign.Only(t)
	compareScenarios(t, campaign.Seed(t, 1000), campaign.Size(20_000, 10))
}

// compareScenarios compares until the first difference, which it shrinks.
func compareScenarios(t *testing.T, first uint64, number int) {
	m := start(t)
	n := &counts{byRow: map[*row]int{}}
	for seed := first; seed < first+uint64(number); seed++ {
		scenario := randomScenario(seed)
		found, err := compare(m, scenario, n)
		if err != nil {
			t.Fatalf("the scenario of seed %d is not valid: %v", seed, err)
		}
		if found == nil {
			if n.worlds%1000 == 0 {
				t.Logf("%d worlds, %d passes, %d victims until seed %d", n.worlds, n.passes, n.victims, seed)
			}
			continue
		}
		scenario.Spec.Steps = scenario.Spec.Steps[:found.step+1]
		scenario = smaller(scenario, func(f *simulate.File) bool {
			found, err := compare(m, f, &counts{byRow: map[*row]int{}})
			return err == nil && found != nil
		})
		if found, err = compare(m, scenario, n); err != nil || found == nil {
			t.Fatalf("seed %d differs by chance: runs are too few", seed)
		}
		t.Errorf("seed %d, step %d: %s differs\nevictd:  %s\nkubelet: %s\nthe scenario, for evictd simulate:\n%s",
			seed, found.step, found.what, encode(found.evictd), encode(found.kubelet), asYAML(t, scenario))
		break
	}
	t.Logf("%d worlds, %d passes, %d victims", n.worlds, n.passes, n.victims)
	for _, r := range rows {
		if n.byRow[r] > 0 {
			t.Logf("%d passes differ as intended: %s, %s (%s)", n.byRow[r], r.rule, r.line, r.how)
		}
	}
}

func asYAML(t *testing.T, f *simulate.File) []byte {
	t.Helper()
	text, err := yaml.Marshal(f)
	require.NoError(t, err)
	return text
}

// A difference that the comparison allows for is one that users can read about.
func TestEveryRowIsDocumented(t *testing.T) {
	root, err := sandbox.SourceRoot()
	require.NoError(t, err)
	text := require.ReadFile(t, filepath.Join(root, "docs/differences.md"))
	for _, r := range rows {
		found := false
		for paragraph := range strings.SplitSeq(string(text), "\n") {
			found = found || strings.Contains(paragraph, r.line) && strings.Contains(paragraph, r.rule)
		}
		if !found {
			t.Errorf("docs/differences.md has no line %q with rule %s", r.line, r.rule)
		}
	}
}
