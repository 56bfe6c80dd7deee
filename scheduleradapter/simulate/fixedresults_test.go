package simulate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/preempt"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

// fixedResults is a plugin with fixed results at Permit and Bind.
type fixedResults struct {
	permit framework.Status
	wait   time.Duration
	bind   framework.Status
}

func (fixedResults) Name() string { return "Trouble" }

// Permit lets only pods of priority 0 wait.
func (p fixedResults) Permit(a framework.Assignment) (framework.Status, time.Duration) {
	if a.Pod.Priority > 0 {
		return framework.Status{}, 0
	}
	return p.permit, p.wait
}

func (p fixedResults) Bind(context.Context, framework.Assignment) framework.Status { return p.bind }

// simulateWith simulates manifests with NodeResourcesFit and the plugin, and returns a
// line per attempt or event.
func simulateWith(t *testing.T, p fixedResults, manifests string) string {
	t.Helper()
	dir := write(t, map[string]string{"a.yaml": manifests})
	objects, _, err := simulate.Load(os.ReadFile, filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := simulate.New(objects, simulate.Config{
		Assemble: func(env framework.Env, _ profile.Stores) ([]cycle.Profile, error) {
			few := int32(1)
			fit, fitErr := resources.NewFit(&config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{Type: config.LeastAllocated}}, env)
			preemption, err := preempt.New(&config.DefaultPreemptionArgs{MinCandidateNodesPercentage: &few, MinCandidateNodesAbsolute: &few}, env)
			runner, runnerErr := framework.New("default-scheduler", &framework.Plan{
				framework.QueueSort: {{Plugin: &priority.Plugin{}}}, framework.Filter: {{Plugin: fit}}, framework.PostFilter: {{Plugin: preemption}},
				framework.Permit: {{Plugin: p}}, framework.Bind: {{Plugin: p}},
			})
			return []cycle.Profile{{Runner: runner, NumFeasibleNodesToFind: func(n int) int { return n }}}, errors.Join(fitErr, err, runnerErr)
		},
		InitialBackoff: time.Second, MaxBackoff: 10 * time.Second, Random: rand.New(rand.NewPCG(1, 1)),
	}, simulate.NewJSON(&out))
	require.NoError(t, err)
	require.NoError(t, s.Run(t.Context()))
	var text strings.Builder
	for line := range strings.Lines(out.String()) {
		var l struct {
			At, Pod, Event, Result, Node, Message string
			Attempt                               int
			Summary                               json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Summary != nil {
			fmt.Fprintf(&text, "%s\n", l.Summary)
		} else {
			fmt.Fprintf(&text, "%s %s %d %s%s %s %s\n", l.At, l.Pod, l.Attempt, l.Result, l.Event, l.Node, l.Message)
		}
	}
	return text.String()
}

func hold(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

const oneNode = `
apiVersion: v1
kind: Node
metadata: {name: a}
status: {capacity: {cpu: "1", pods: "10"}}
`

const onePod = `
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
`

func TestAPodWhoseAttemptsEndInAnErrorFiveTimesIsGivenUp(t *testing.T) {
	hold(t, simulateWith(t, fixedResults{bind: framework.AsStatus(errors.New("no answer"))}, oneNode+onePod), `0s default/p 1 error  running Bind plugin "Trouble": no answer
2s default/p 2 error  running Bind plugin "Trouble": no answer
5s default/p 3 error  running Bind plugin "Trouble": no answer
10s default/p 4 error  running Bind plugin "Trouble": no answer
19s default/p 5 error  running Bind plugin "Trouble": no answer
{"scheduled":0,"unschedulable":1,"gated":0,"waiting":0,"preempted":0,"evicted":0}
`)
}

func TestAPodThatPermitDeniesIsUnschedulable(t *testing.T) {
	denied := framework.Status{Code: framework.Unschedulable, Reason: "not today"}
	hold(t, simulateWith(t, fixedResults{permit: denied}, oneNode+onePod), `0s default/p 1 unschedulable  0/1 nodes are available: 1 not today.
{"scheduled":0,"unschedulable":1,"gated":0,"waiting":0,"preempted":0,"evicted":0}
`)
}

func TestAPodWaitsForPermissionAsLongAsThePluginSays(t *testing.T) {
	hold(t, simulateWith(t, fixedResults{permit: framework.Status{Code: framework.Wait}, wait: 40 * time.Second}, oneNode+onePod), `0s default/p 1 waiting a 
40s default/p 1 unschedulable  0/1 nodes are available: 1 timeout.
{"scheduled":0,"unschedulable":1,"gated":0,"waiting":0,"preempted":0,"evicted":0}
`)
}

func TestAPodThatWaitsForPermissionMakesRoomAtOnce(t *testing.T) {
	hold(t, simulateWith(t, fixedResults{permit: framework.Status{Code: framework.Wait}, wait: 40 * time.Second}, `
apiVersion: v1
kind: Node
metadata: {name: a}
spec: {taints: [{key: out, effect: NoExecute}]}
status: {capacity: {cpu: "2", pods: "10"}}
---
apiVersion: v1
kind: Pod
metadata: {name: leaves}
spec: {nodeName: a, priority: 9, terminationGracePeriodSeconds: 10, containers: [{name: c, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: high}
spec: {priority: 5, tolerations: [{operator: Exists}], containers: [{name: c, resources: {requests: {cpu: "2"}}}]}
`+onePod), `0s default/leaves 0 evicted a 
0s default/high 1 unschedulable  0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.
0s default/p 1 waiting a 
10s default/leaves 0 deleted a 
10s default/high 2 nominated  0/1 nodes are available: 1 Insufficient cpu. preemption: found a potential placement for pod on node a, preempting 1 victims
10s default/p 1 unschedulable  0/1 nodes are available: 1 preempted.
10s default/high 3 scheduled a 
{"scheduled":1,"unschedulable":1,"gated":0,"waiting":0,"preempted":1,"evicted":1}
`)
}
