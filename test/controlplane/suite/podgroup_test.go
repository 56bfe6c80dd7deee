package suite_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

const genericWorkload = "--feature-gates=GenericWorkload=true"

func gang(minCount int32) schedulingv1beta1.PodGroupSchedulingPolicy {
	return schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: minCount}}
}

// podGroupWorld is a PodGroup with its pods, on a node with 4 CPUs that also has the
// pods low-0 and on, of a lower priority.
type podGroupWorld struct {
	policy schedulingv1beta1.PodGroupSchedulingPolicy
	class  string // of the PodGroup and its pods
	other  string // the class of the last pod, where it is not class
	cpus   []string
	low    []string // CPUs of the pods on the node
	bound  bool     // the end is that all pods are bound
	gated  bool     // no attempt happens
	partly bool     // some pods are bound: which of the equal pods depends on when the events arrive, and kube-scheduler may change the condition to False, by an older version of the PodGroup
}

// withPodGroups is a kube-apiserver of its own that serves PodGroups.
func withPodGroups(t *testing.T) *api {
	return open(t, func(testing.TB) (*apiserver.Server, error) {
		server, err := apiserver.NewKubeAPIServer(genericWorkload, "--runtime-config=scheduling.k8s.io/v1beta1=true")
		if err == nil {
			t.Cleanup(func() {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
			})
		}
		return server, err
	})
}

// runPodGroup gives the world to a scheduler and returns what it did, with the names
// and uids of objects replaced.
func (a *api) runPodGroup(name, profile string, w podGroupWorld) (outcome []string) {
	a.t.Helper()
	world := name + "-" + strings.TrimSuffix(profile, "-scheduler")
	of := func(p *v1.Pod) {
		p.Spec.SchedulerName, p.Spec.PriorityClassName = profile, w.class
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &world}
	}
	for i, cpu := range w.low {
		p := pod(fmt.Sprintf("%s-low-%d", world, i), cpu, ofClass("low"))
		p.Spec.NodeName = "n1"
		a.createPods(p)
	}
	group, err := a.admin.SchedulingV1beta1().PodGroups("default").Create(a.t.Context(), &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: world},
		Spec:       schedulingv1beta1.PodGroupSpec{SchedulingPolicy: w.policy, PriorityClassName: w.class},
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	var names []string
	for i, cpu := range w.cpus {
		p := pod(fmt.Sprintf("%s-%d", world, i), cpu, of)
		if i == len(w.cpus)-1 && w.other != "" {
			p.Spec.PriorityClassName = w.other
		}
		a.createPods(p)
		names = append(names, p.Name)
	}
	if w.gated {
		a.createPods(pod(world+"-probe", "1", scheduledBy(profile)))
		a.awaitBound(world + "-probe")
	}
	await(a.t, "an end of "+world, func() bool {
		outcome = outcome[:0]
		ended := true
		for _, name := range names {
			end := a.end(name)
			ended = ended && (end != "" || w.gated) && (end == "bound" || !w.bound)
			outcome = append(outcome, end)
		}
		condition := a.podGroupCondition(world)
		if w.partly {
			slices.Sort(outcome)
		} else {
			outcome = append(outcome, condition)
		}
		return ended && (condition != "" || w.gated) && (strings.HasPrefix(condition, "True") || !w.bound)
	})
	for i := range w.low {
		name := fmt.Sprintf("%s-low-%d", world, i)
		if a.pod(name) == nil {
			note := strings.ReplaceAll(a.awaitEvent("Preempted", name), string(group.UID), "UID")
			outcome = append(outcome, fmt.Sprintf("low-%d: %s", i, note))
		}
	}
	if err := a.admin.CoreV1().Pods("default").DeleteCollection(a.t.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		a.t.Fatal(err)
	}
	return outcome
}

// end is whether the pod is bound, or the reason and message of its condition; empty:
// neither.
func (a *api) end(name string) string {
	a.t.Helper()
	p := a.pod(name)
	if p.Spec.NodeName != "" {
		return "bound"
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func (a *api) podGroupCondition(name string) string {
	a.t.Helper()
	group, err := a.admin.SchedulingV1beta1().PodGroups("default").Get(a.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	if c := meta.FindStatusCondition(group.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled); c != nil {
		return fmt.Sprintf("%s %s: %s, generation %d of %d", c.Status, c.Reason, c.Message, c.ObservedGeneration, group.Generation)
	}
	return ""
}

// TestPodGroupsEndAsWithKubeScheduler gives the same PodGroups to both schedulers, one
// after the other. Times and the order of retries are not compared.
//
// rule: S1.107
// rule: S1.108
// rule: S1.109
// rule: S1.110
// rule: S1.112
// rule: S1.113
func TestPodGroupsEndAsWithKubeScheduler(t *testing.T) {
	a := withPodGroups(t)
	for name, value := range map[string]int32{"low": 1, "high": 1000} {
		class := &scheduling.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if _, err := a.admin.SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	a.createNodes(node("n1"))
	const theirs = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: theirs}]\n"
	a.schedule(genericWorkload)
	a.runKubeScheduler(theirs, genericWorkload)
	basic := schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	worlds := map[string]podGroupWorld{
		"fits":       {policy: gang(3), cpus: []string{"1", "1", "1"}, bound: true},
		"too-large":  {policy: gang(3), cpus: []string{"2", "2", "2"}},
		"incomplete": {policy: gang(3), cpus: []string{"1", "1"}, gated: true},
		"basic":      {policy: basic, cpus: []string{"2", "2", "2"}, partly: true},
		"nothing":    {policy: basic, cpus: []string{"5", "5"}},
		"preempts":   {policy: gang(2), class: "high", cpus: []string{"2", "2"}, low: []string{"2", "2"}, bound: true},
		"in-vain":    {policy: gang(3), class: "high", cpus: []string{"2", "2", "2"}, low: []string{"2"}},
		"priorities": {policy: gang(2), class: "low", other: "high", cpus: []string{"1", "1"}},
	}
	for _, name := range slices.Sorted(maps.Keys(worlds)) {
		ours, want := a.runPodGroup(name, "default-scheduler", worlds[name]), a.runPodGroup(name, "theirs", worlds[name])
		t.Logf("%s:\n%s", name, strings.Join(ours, "\n"))
		if !slices.Equal(ours, want) {
			t.Errorf("%s:\nevictd-scheduler:\n%s\nkube-scheduler:\n%s", name, strings.Join(ours, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestEventsAreHandledWhileAnExtenderAnswersForAPodGroup: a node that appears meanwhile is not one
// that the extender was asked about.
//
// rule: S8.47
func TestEventsAreHandledWhileAnExtenderAnswersForAPodGroup(t *testing.T) {
	a := withPodGroups(t)
	asked, ready := make(chan string, 10), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var args struct {
			Pod       struct{ Metadata metav1.ObjectMeta }
			NodeNames []string
		}
		if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
			t.Error(err)
		}
		if asked <- args.Pod.Metadata.Name; args.Pod.Metadata.Name != "next" {
			select {
			case <-ready:
			case <-r.Context().Done(): // the scheduler has ended
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"NodeNames": args.NodeNames})
	}))
	t.Cleanup(server.Close)
	config := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
		"extenders: [{urlPrefix: %q, filterVerb: filter, httpTimeout: 1h, nodeCacheCapable: true}]\n", server.URL), 0o600))
	a.createNodes(node("n1"))
	s := a.schedule(genericWorkload, sandbox.Config(config))
	name := "held"
	if _, err := a.admin.SchedulingV1beta1().PodGroups("default").Create(t.Context(), &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: schedulingv1beta1.PodGroupSpec{SchedulingPolicy: gang(2)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		a.createPods(pod(fmt.Sprint("held-", i), "1", func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} }))
	}
	got := []string{<-asked}
	a.createPods(pod("next", "1"))
	a.createNodes(node("n2"))
	await(t, "the events are handled", func() bool {
		metrics, metricsErr := s.Get("/metrics")
		waiting, waitingErr := s.Get("/v1/explain")
		require.NoError(t, errors.Join(metricsErr, waitingErr))
		return strings.Contains(string(metrics), `scheduler_cache_size{type="nodes"} 2`+"\n") &&
			strings.Contains(string(waiting), `"pod":"default/next","place":"active"`)
	})
	close(ready)
	for i := range 2 {
		if on := a.awaitBound(fmt.Sprint("held-", i)); i == 0 && on != "n1" {
			t.Errorf("held-0 is on node %s", on)
		}
	}
	a.awaitBound("next")
	got = append(got, <-asked, <-asked)
	if want := []string{"held-0", "held-1", "next"}; !slices.Equal(got, want) {
		t.Errorf("the extender was asked about %v, expected %v", got, want)
	}
}
