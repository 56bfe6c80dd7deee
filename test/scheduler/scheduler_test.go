// Package scheduler_test compares the attempts of evictd-scheduler with those of kube-scheduler in
// random clusters. kube-scheduler is in a program of its own,
// test/controlplane/parts/cmd/scheduling-attempts.
package scheduler_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/shrink"
)

func TestRandomWorlds(t *testing.T) { compareWorlds(t, 0, 200) }

func TestCampaignRandomWorlds(t *testing.T) {
	campaign.Only(t)
	compareWorlds(t, campaign.Seed(t, 1000), campaign.Size(10_000, 10))
}

// compareWorlds compares until the first difference, which it shrinks.
func compareWorlds(t *testing.T, from uint64, number int) {
	k := start(t)
	n := &counts{byRow: map[*row]int{}}
	for seed := from; seed < from+uint64(number); seed++ {
		w := randomWorld(seed)
		found, err := compare(k, w, n)
		if err != nil {
			t.Fatalf("the world of seed %d is not valid: %v\n%s", seed, err, w.yaml())
		}
		if found == nil {
			if n.worlds%1000 == 0 {
				t.Logf("%v until seed %d", n, seed)
			}
			continue
		}
		t.Logf("seed %d: pod %s: %s differs", seed, found.evictd.Pod, found.what)
		first := found
		w = smaller(k, w, found.what)
		if found, err = compare(k, w, n); err != nil || found == nil {
			t.Fatalf("seed %d differs by chance: runs are too few\nevictd-scheduler: %s\nkube-scheduler:   %s", seed, encode(first.evictd), encode(first.kubeScheduler))
		}
		t.Errorf("seed %d: pod %s: %s differs\nevictd-scheduler: %s\nkube-scheduler:   %s\nthe cluster, for evictd-scheduler simulate:\n%s",
			seed, found.evictd.Pod, found.what, encode(found.evictd), encode(found.kubeScheduler), w.yaml())
		break
	}
	t.Log(n)
	for _, r := range rows {
		if n.byRow[r] > 0 {
			t.Logf("%d attempts differ as intended: %s, %s (%s)", n.byRow[r], r.rule, r.line, r.how)
		}
	}
}

// smaller is a part of a world in which an attempt differs in the same.
func smaller(k *kubeScheduler, w *world, what string) *world {
	text := shrink.JSON(w.text(), func(text []byte) bool {
		w := &world{}
		if json.Unmarshal(text, w) != nil {
			return false
		}
		found, err := compare(k, w, &counts{byRow: map[*row]int{}})
		return err == nil && found != nil && found.what == what
	})
	w = &world{}
	if err := json.Unmarshal(text, w); err != nil {
		panic(err)
	}
	return w
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
