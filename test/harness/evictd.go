package harness

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
)

// Evictd is an `evictd run`.
type Evictd struct{ *Process }

// Status is the status document now.
func (e *Evictd) Status() *nodestatus.Status {
	e.T.Helper()
	var status nodestatus.Status
	require.NoError(e.T, json.Unmarshal(e.document("/v1/status"), &status))
	return &status
}

// Metrics is the page of metrics now.
func (e *Evictd) Metrics() string {
	e.T.Helper()
	return string(e.document("/metrics"))
}

// document reads one of the status address. On a busy machine evictd answers 503, or ends a connection
// whose request is late: then it is asked again.
func (e *Evictd) document(path string) (body []byte) {
	e.T.Helper()
	var err error
	ctx, cancel := limited()
	defer cancel()
	_ = wait.That(ctx, func() bool {
		body, err = process.Get(ctx, e.client, path)
		return err == nil || e.service != nil && !e.service.Running()
	})
	if err != nil {
		e.T.Fatalf("%s of evictd: %v", path, err)
	}
	return body
}

// Answer is the status line of a path of the status address, such as 200 OK.
func (e *Evictd) Answer(path string) string {
	e.T.Helper()
	response, err := e.client.Get("http://localhost" + path)
	require.NoError(e.T, err)
	response.Body.Close()
	return response.Status
}

// Await returns the first status that is as described.
func (e *Evictd) Await(what string, holds func(*nodestatus.Status) bool) *nodestatus.Status {
	e.T.Helper()
	var status *nodestatus.Status
	Await(e.T, what, func() bool {
		status = e.Status()
		return holds(status)
	})
	return status
}

// AwaitLog waits until the log has a text.
func (e *Evictd) AwaitLog(text string) {
	e.T.Helper()
	Await(e.T, "the log of evictd to have "+text, func() bool { return strings.Contains(e.Log(), text) })
}

// AwaitPods waits until evictd ranks the pods for a signal by what it measured.
func (e *Evictd) AwaitPods(signal string, pods ...*Pod) {
	e.T.Helper()
	e.Await("evictd to measure "+names(pods), func(s *nodestatus.Status) bool {
		return !slices.ContainsFunc(pods, func(p *Pod) bool { return !Measured(s, signal, p.UID) })
	})
}

// Measured says whether evictd ranks a pod for a signal by what it measured.
func Measured(s *nodestatus.Status, signal string, uid types.UID) bool {
	return slices.ContainsFunc(s.Ranking[signal], func(r nodestatus.Ranked) bool { return r.UID == uid && r.Usage != "" })
}

// AwaitEviction waits until a pod is being evicted, and more where holds is not nil.
func (e *Evictd) AwaitEviction(p metav1.Object, holds func(nodestatus.Eviction) bool) (found nodestatus.Eviction) {
	e.T.Helper()
	e.Await("the eviction of "+p.GetName(), func(s *nodestatus.Status) bool {
		at := slices.IndexFunc(s.Evictions, func(e nodestatus.Eviction) bool { return e.UID == p.GetUID() && (holds == nil || holds(e)) })
		if at >= 0 {
			found = s.Evictions[at]
		}
		return at >= 0
	})
	return found
}

// Gone says that nothing is left of an evicted pod.
func Gone(e nodestatus.Eviction) bool { return !e.Gone.IsZero() }

// AwaitGone waits for the end of a pod's eviction, and of the pod.
func (e *Evictd) AwaitGone(p *Pod) nodestatus.Eviction {
	e.T.Helper()
	eviction := e.AwaitEviction(p, Gone)
	p.AwaitEnd()
	return eviction
}

// AwaitCondition waits until the status has a condition as true or as false, and its
// taint with it.
func (e *Evictd) AwaitCondition(condition v1.NodeConditionType, taint string, raised bool) {
	e.T.Helper()
	want := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[raised]
	e.Await(string(condition)+" to be "+string(want), func(s *nodestatus.Status) bool {
		conditions, taints := s.Conditions, s.Taints
		if s.WouldBe != nil {
			conditions, taints = s.WouldBe.Conditions, s.WouldBe.Taints
		}
		return slices.Contains(taints, taint+":NoSchedule") == raised && slices.ContainsFunc(conditions, func(c nodestatus.ConditionStatus) bool {
			return c.Type == condition && c.Status == want
		})
	})
}

// Shows says whether a Node has a condition as true or as false, and its taint with it.
func Shows(node *v1.Node, condition v1.NodeConditionType, taint string, raised bool) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == taint && t.Effect == v1.TaintEffectNoSchedule
	})
	at := slices.IndexFunc(node.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == condition })
	return at >= 0 && (node.Status.Conditions[at].Status == v1.ConditionTrue) == raised && tainted == raised
}

// MustHaveEvicted fails the test unless exactly these pods were evicted, in this order.
func (e *Evictd) MustHaveEvicted(pods ...*Pod) {
	e.T.Helper()
	var evicted []string
	for _, eviction := range e.Status().Evictions {
		evicted = append(evicted, eviction.Pod)
	}
	if got, want := strings.Join(evicted, ", "), names(pods); got != want {
		e.T.Errorf("evicted are %q, want %q", got, want)
	}
}

// AwaitMetric waits until the page of metrics has a line.
func (e *Evictd) AwaitMetric(line string) {
	e.T.Helper()
	Await(e.T, "the metrics to have "+line, func() bool { return slices.Contains(strings.Split(e.Metrics(), "\n"), line) })
}

// AwaitJournal waits until the file of the journal has what the status shows now.
func (e *Evictd) AwaitJournal() {
	e.T.Helper()
	last := e.Status().Time.Time
	e.Await("the pass after the last, which is in the journal", func(s *nodestatus.Status) bool { return s.Time.After(last) })
	const changes, written = "evictd_journal_changes_total", "evictd_journal_changes_written_total"
	all := e.metric(changes)
	Await(e.T, "the journal to be written", func() bool { return e.metric(written) >= all })
}

// metric is the value of a series without labels.
func (e *Evictd) metric(name string) (value float64) {
	e.T.Helper()
	_, after, found := strings.Cut(e.Metrics(), "\n"+name+" ")
	text, _, _ := strings.Cut(after, "\n")
	value, err := strconv.ParseFloat(text, 64)
	if !found || err != nil {
		e.T.Fatalf("the metrics have no %s: %q, %v", name, text, err)
	}
	return value
}

// Agent is the process id of the agent.
func (e *Evictd) Agent() (pid int) {
	e.T.Helper()
	started := children(e.PID())
	if len(started) == 0 {
		e.T.Fatal("evictd has no agent")
	}
	return started[0]
}

// KillAgent ends the agent by SIGKILL.
func (e *Evictd) KillAgent() {
	e.T.Helper()
	require.NoError(e.T, syscall.Kill(e.Agent(), syscall.SIGKILL))
}
