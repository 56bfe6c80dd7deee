package scheduler_test

import (
	"encoding/json"
	"testing"

	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// The lines that test/controlplane/parts/cmd/scheduling-attempts reads and writes: a question each,
// an answer each.
type (
	question struct {
		Config    string // a KubeSchedulerConfiguration; empty: the default
		Objects   []json.RawMessage
		Pod       string // namespace/name
		PodGroup  string // attempted if there is no Pod
		PodGroups bool   // GenericWorkload is on
		Runs      int    // the answers are the different ones
	}
	answer struct {
		Failed    bool // with an error
		Feasible  []string
		Filtered  map[string]rejection
		Scores    map[string]scores
		Nominated string
		Victims   []string // sorted, without those that are terminating
		Message   string
		// Of a PodGroup: its pods, by namespace/name, and its condition.
		Pods      map[string]podEnd
		Condition condition
	}
	// podEnd is a node, or why there is none.
	podEnd    struct{ Node, Nominated, Message string }
	condition struct{ Status, Reason, Message string }
	rejection struct {
		Plugin     string   `json:"plugin"`
		Reasons    []string `json:"reasons"`
		Resolvable bool     `json:"resolvable"`
	}
	scores struct {
		Total   int64            `json:"total"`
		Plugins map[string]int64 `json:"plugins"`
	}
)

// kubeScheduler is a running scheduling-attempts.
type kubeScheduler struct{ *apiserver.Peer }

func start(t *testing.T) *kubeScheduler {
	return &kubeScheduler{apiserver.StartPeer(t, "scheduling-attempts")}
}

// ask returns all answers.
func (k *kubeScheduler) ask(q question) (answers []answer) {
	k.Ask(q, &answers)
	return answers
}
