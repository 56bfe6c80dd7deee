package node_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/test/harness"
)

// checkReplay fails the test at its end where the recording of a node, played again,
// evicts other pods than the daemon did, in another order, for another signal or with
// another grace. Call it before the daemon starts. A scenario has fifteen minutes.
func checkReplay(n *harness.Node) {
	n.T.Cleanup(func() {
		recording, err := recorder.Read(filepath.Join(n.StateDir(), "flight"))
		if err != nil {
			n.T.Fatal(err)
		}
		stories := slices.DeleteFunc(recording.Stories(), func(s recorder.Story) bool { return strings.HasPrefix(s.Error, "the kill could not begin") })
		if len(stories) == 0 {
			return
		}
		last := &stories[len(stories)-1]
		text, err := json.Marshal(recording.Scenario(last))
		if err != nil {
			n.T.Fatal(err)
		}
		scenario, err := simulate.Parse(text)
		if err != nil {
			n.T.Fatal(err)
		}
		var decided, replayed []string
		for _, s := range stories {
			if s.Decided.After(last.Decided.Add(-15 * time.Minute)) {
				decided = append(decided, s.Pod+" for "+s.Signal+" in "+s.Grace)
			}
		}
		for _, step := range scenario.Run() {
			for _, e := range step.Evictions {
				replayed = append(replayed, e.Pod+" for "+e.Signal+" in "+e.Grace.Round(time.Millisecond).String())
			}
		}
		if !slices.Equal(decided, replayed) {
			n.T.Errorf("decided\n%s\nreplayed\n%s", strings.Join(decided, "\n"), strings.Join(replayed, "\n"))
		}
	})
}
