package node_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/flight"
	"github.com/evictd/evictd/eviction/simulate"
)

// evictd runs the program to its end and returns what it printed.
func (n *node) evictd(args ...string) string {
	n.t.Helper()
	out, err := exec.Command(program, args...).Output()
	if err != nil {
		n.t.Fatalf("evictd %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// played are the pods that a replay evicts, in order.
func (n *node) played(args ...string) []string {
	n.t.Helper()
	var all []string
	for line := range strings.Lines(n.evictd(append([]string{"simulate", "-o", "json"}, args...)...)) {
		var step simulate.Step
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			n.t.Fatal(err)
		}
		for _, e := range step.Evictions {
			all = append(all, e.Pod)
		}
	}
	return all
}

func TestFlightRecorderTellsWhyAPodWentAlsoAfterACrash(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	calm := n.start("calm", podSpec{request: "64Mi"})
	calm.do("hold 20")
	leaker := n.start("leaker", podSpec{request: "8Mi"})
	leaker.do("hold 16")
	d := n.run("--eviction-hard=memory.available<64Mi")
	d.awaitPods(memorySignal, calm, leaker)
	leaker.tell("leak 200 400")
	e := d.awaitEnd(leaker)

	var stories []flight.Story
	await(t, "the story to be whole", func() bool {
		out, err := exec.Command(program, "why", leaker.Name, "-o", "json", "--status-address=unix:"+n.socket()).Output()
		return err == nil && json.Unmarshal(out, &stories) == nil && len(stories) == 1 && !stories[0].Gone.IsZero()
	})
	s := stories[0]
	if s.UID != leaker.UID || s.Message != e.Message || !s.Decided.Equal(e.Decided.Time) || s.Next != "" && s.Next != "default/"+calm.Name || len(s.Ranking) == 0 {
		t.Errorf("story %+v\neviction %+v", s, e)
	}
	d.Kill()
	state := filepath.Join(n.dir, "state")
	if text := n.evictd("why", "--last", "--state-dir="+state); !strings.Contains(text, leaker.Name+" was evicted") {
		t.Errorf("after the crash: %s", text)
	}
	scenario, other := filepath.Join(n.dir, "scenario.yaml"), filepath.Join(n.dir, "other.yaml")
	for path, text := range map[string]string{
		scenario: n.evictd("why", "--last", "--state-dir="+state, "-o", "scenario"),
		other:    "apiVersion: evictd.io/v1alpha1\nkind: EvictdConfiguration\nevictionHard: {memory.available: 1Mi}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(n.played(scenario), " "); got != "default/"+leaker.Name {
		t.Errorf("played again, it evicts %q", got)
	}
	if got := n.played("--config", other, scenario); len(got) != 0 {
		t.Errorf("under a threshold of 1Mi it evicts %q", got)
	}
	mustLive(t, calm)
}
