package scheduler_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// The lines that test/controlplane/parts/cmd/scheduling-attempts reads and writes: a question each,
// an answer each.
type (
	question struct {
		Config  string // a KubeSchedulerConfiguration; empty: the default
		Objects []json.RawMessage
		Pod     string // namespace/name
		Runs    int    // the answers are the different ones
	}
	answer struct {
		Failed    bool // with an error
		Feasible  []string
		Filtered  map[string]rejection
		Scores    map[string]scores
		Nominated string
		Victims   []string // sorted, without those that are terminating
		Message   string
	}
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
type kubeScheduler struct {
	in  *json.Encoder
	out *json.Decoder
}

// start runs the program until the test ends.
func start(t *testing.T) *kubeScheduler {
	t.Helper()
	path, err := apiserver.Program("scheduling-attempts")
	if err != nil {
		t.Skip("skipped:", err)
	}
	cmd := exec.Command(path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("scheduling-attempts: %v", err)
		}
	})
	return &kubeScheduler{json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))}
}

func (k *kubeScheduler) ask(q question) (answers []answer) {
	if err := k.in.Encode(q); err != nil {
		panic(fmt.Errorf("ask scheduling-attempts: %w", err))
	}
	if err := k.out.Decode(&answers); err != nil {
		panic(fmt.Errorf("read the answer of scheduling-attempts: %w", err))
	}
	return answers
}
