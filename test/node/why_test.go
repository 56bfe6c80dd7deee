package node_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// evictd runs the program to its end and returns what it printed.
func evictd(n *harness.Node, args ...string) string {
	n.T.Helper()
	out, err := exec.Command(harness.Program(n.T, "evictd"), args...).Output()
	if err != nil {
		n.T.Fatalf("evictd %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// replayed are the pods that a replay evicts, in order.
func replayed(n *harness.Node, args ...string) []string {
	n.T.Helper()
	var all []string
	for line := range strings.Lines(evictd(n, append([]string{"simulate", "-o", "json"}, args...)...)) {
		var step simulate.Step
		require.NoError(n.T, json.Unmarshal([]byte(line), &step))
		for _, e := range step.Evictions {
			all = append(all, e.Pod)
		}
	}
	return all
}

func TestFlightRecorderShowsWhyAPodWasEvictedAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	checkReplay(n)
	calm := n.Start("calm", sandbox.Spec{Request: "64Mi"})
	calm.Do("hold 20Mi")
	leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
	leaker.Do("hold 16Mi")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, calm, leaker)
	press(leaker, 32)
	e := d.AwaitGone(leaker)

	var stories []recorder.Story
	require.NoError(t, json.Unmarshal([]byte(evictd(n, "why", leaker.Name, "-o", "json", "--status-address=unix:"+n.Socket())), &stories))
	if len(stories) != 1 || stories[0].Gone.IsZero() {
		t.Fatalf("the status shows the end of the eviction, and the story is %+v", stories)
	}
	s := stories[0]
	if s.UID != leaker.UID || s.Message != e.Message || !s.Decided.Equal(e.Decided.Time) || s.Next != "" && s.Next != "default/"+calm.Name || len(s.Ranking) == 0 {
		t.Errorf("story %+v\neviction %+v", s, e)
	}
	d.Kill()
	state := filepath.Join(n.Dir, "state")
	if text := evictd(n, "why", "--last", sandbox.StateDir(state)); !strings.Contains(text, leaker.Name+" was evicted") {
		t.Errorf("after the crash: %s", text)
	}
	scenario, other := filepath.Join(n.Dir, "scenario.yaml"), filepath.Join(n.Dir, "other.yaml")
	for path, text := range map[string]string{
		scenario: evictd(n, "why", "--last", sandbox.StateDir(state), "-o", "scenario"),
		other:    "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\nevictionHard: {memory.available: 1Mi}\n",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	if got := strings.Join(replayed(n, scenario), " "); got != "default/"+leaker.Name {
		t.Errorf("the replay evicts %q", got)
	}
	if got := replayed(n, "--config", other, scenario); len(got) != 0 {
		t.Errorf("under a threshold of 1Mi it evicts %q", got)
	}
	harness.MustRun(t, calm)
}
