package node_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/harness"
)

// checkReplay fails the test at its end where the recording of a node, simulated again,
// evicts other pods than the daemon did, in another order, for another signal or with
// another grace. Call it before the daemon starts. A scenario has fifteen minutes.
func checkReplay(n *harness.Node) {
	n.T.Cleanup(func() {
		stories, steps := replay(n)
		if len(stories) == 0 {
			return
		}
		last := &stories[len(stories)-1]
		var decided, replayed []string
		for _, s := range stories {
			if s.Decided.After(last.Decided.Add(-15 * time.Minute)) {
				decided = append(decided, s.Pod+" for "+s.Signal+" in "+s.Grace)
			}
		}
		for _, step := range steps {
			for _, e := range step.Evictions {
				replayed = append(replayed, e.Pod+" for "+e.Signal+" in "+e.Grace.Round(time.Millisecond).String())
			}
		}
		if !slices.Equal(decided, replayed) {
			n.T.Errorf("decided\n%s\nreplayed\n%s", strings.Join(decided, "\n"), strings.Join(replayed, "\n"))
		}
	})
}

// replay simulates the recording around the last eviction of a node again. The stories are of
// evictions whose kill began.
func replay(n *harness.Node) (stories []recorder.Story, steps []simulate.Step) {
	n.T.Helper()
	recording, err := recorder.Read(filepath.Join(n.StateDir(), "flight"))
	require.NoError(n.T, err)
	stories = slices.DeleteFunc(recording.Stories(), func(s recorder.Story) bool { return strings.HasPrefix(s.Error, "the kill could not begin") })
	if len(stories) == 0 {
		return nil, nil
	}
	text, err := json.Marshal(recording.Scenario(&stories[len(stories)-1]))
	require.NoError(n.T, err)
	scenario, err := simulate.Parse(text)
	require.NoError(n.T, err)
	return stories, scenario.Run()
}
