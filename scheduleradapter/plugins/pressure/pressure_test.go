package pressure_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
)

var begun = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

func node(name string, conditions ...v1.NodeCondition) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Conditions: conditions}}
}

func condition(kind v1.NodeConditionType, status v1.ConditionStatus, since time.Time) v1.NodeCondition {
	return v1.NodeCondition{Type: kind, Status: status, LastTransitionTime: metav1.Time{Time: since}}
}

func arguments(change ...func(*config.NodePressureArgs)) *config.NodePressureArgs {
	a := &config.NodePressureArgs{
		Conditions: []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure}, Headroom: new(true),
		EvictionHalfLife: &metav1.Duration{Duration: 10 * time.Minute}, Ramp: &metav1.Duration{Duration: 5 * time.Minute},
	}
	for _, c := range change {
		c(a)
	}
	return a
}

func pod(class v1.PodQOSClass, owner string, tolerations ...v1.Toleration) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "uid"}, Status: v1.PodStatus{QOSClass: class}}
	p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
	p.Spec.Tolerations = tolerations
	return p
}

// evaluate filters and scores at an instant; a rejected node has no score.
func evaluate(c *plugintest.Cluster, p framework.Plugin, of *v1.Pod, now time.Time) map[string]int64 {
	v := c.EvaluateAt(p, c.Digest(of), now)
	if !v.Status.OK() {
		c.Fatal(v.Status.Message())
	}
	return v.Scores
}

func TestConditionsOfBothNamesKeepPodsAwayAsTheKubeletAdmitsThem(t *testing.T) {
	c := plugintest.New(t,
		node("memory", condition(v1.NodeMemoryPressure, v1.ConditionTrue, begun)),
		node("disk", condition("evictd.io/DiskPressure", v1.ConditionTrue, begun)),
		node("stale", condition("evictd.io/PIDPressure", v1.ConditionTrue, begun)),
		node("unknown", condition(v1.NodePIDPressure, v1.ConditionUnknown, begun)))
	c.Table.SetHeadroom(nodetable.Intern("disk"), &nodetable.Headroom{Until: begun.Add(time.Hour)})
	c.Table.SetHeadroom(nodetable.Intern("stale"), &nodetable.Headroom{Until: begun})
	p := c.Make(pressure.New, arguments())
	for _, of := range []struct {
		pod  *v1.Pod
		want map[string]int64
	}{
		{pod(v1.PodQOSBestEffort, "o"), map[string]int64{"stale": 100, "unknown": 100}},
		{pod(v1.PodQOSBurstable, "o"), map[string]int64{"memory": 100, "stale": 100, "unknown": 100}},
		{pod(v1.PodQOSBestEffort, "o", v1.Toleration{Operator: v1.TolerationOpExists}), map[string]int64{"memory": 100, "disk": 100, "stale": 100, "unknown": 100}},
		{pod(v1.PodQOSBestEffort, "o", v1.Toleration{Key: "evictd.io/disk-pressure", Operator: v1.TolerationOpExists}), map[string]int64{"disk": 100, "stale": 100, "unknown": 100}},
	} {
		plugintest.Equal(t, string(of.pod.Status.QOSClass), evaluate(c, p, of.pod, begun.Add(time.Minute)), of.want)
	}
	disk := c.Make(pressure.New, arguments(func(a *config.NodePressureArgs) { a.Conditions = []v1.NodeConditionType{v1.NodeDiskPressure} }))
	plugintest.Equal(t, "disk only", evaluate(c, disk, pod(v1.PodQOSBestEffort, "o"), begun), map[string]int64{"memory": 100, "stale": 100, "unknown": 100})
	off := c.Make(pressure.New, arguments(func(a *config.NodePressureArgs) { a.Conditions = nil }))
	plugintest.Equal(t, "switched off", evaluate(c, off, pod(v1.PodQOSBestEffort, "o"), begun), map[string]int64{"memory": 100, "disk": 100, "stale": 100, "unknown": 100})
}

func TestEvictionsFadeByHalfInTheHalfLife(t *testing.T) {
	c := plugintest.New(t, node("n"), node("other"))
	c.Table.SetHeadroom(nodetable.Intern("n"), &nodetable.Headroom{
		Until: begun.Add(10 * time.Hour), Evicted: []nodetable.Eviction{{Owner: "o", Signal: "memory.available", At: begun}},
	})
	p := c.Make(pressure.New, arguments())
	for _, at := range []struct {
		after time.Duration
		want  int64
	}{{-time.Second, 0}, {0, 0}, {5 * time.Minute, 25}, {10 * time.Minute, 50}, {20 * time.Minute, 75}, {25 * time.Minute, 81}, {3 * time.Hour, 100}} {
		plugintest.Equal(t, at.after.String(), evaluate(c, p, pod("", "o"), begun.Add(at.after)), map[string]int64{"n": at.want, "other": 100})
	}
	plugintest.Equal(t, "another owner", evaluate(c, p, pod("", "x"), begun), map[string]int64{"n": 100, "other": 100})
}

func TestAPodThatTheAPIServerHasAsEvictedIsRememberedWithoutAnyHeadroom(t *testing.T) {
	evicted := pod(v1.PodQOSBurstable, "o")
	evicted.Spec.NodeName = "n"
	evicted.Status.Phase, evicted.Status.Reason = v1.PodFailed, "Evicted"
	evicted.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: begun}}}
	at, eviction, ok := nodetable.NewEviction(evicted)
	if !ok || at != "n" {
		t.Fatalf("digest %v of node %q, %t", eviction, at, ok)
	}
	pressed, eased := node("n", condition(v1.NodeMemoryPressure, v1.ConditionTrue, begun)), node("n")
	for _, c := range []struct {
		what string
		node *v1.Node
		want map[string]int64
	}{{"while the node is short", pressed, map[string]int64{"other": 100}}, {"afterwards", eased, map[string]int64{"n": 50, "other": 100}}} {
		cluster := plugintest.New(t, c.node, node("other"))
		cluster.Table.AddEviction(nodetable.Intern(at), eviction)
		p := cluster.Make(pressure.New, arguments())
		plugintest.Equal(t, c.what, evaluate(cluster, p, pod(v1.PodQOSBurstable, "o"), begun.Add(10*time.Minute)), c.want)
	}
	evicted.Status.Phase, evicted.Status.Reason = v1.PodSucceeded, "" // its containers have exited with 0
	evicted.Status.Conditions[0].Reason, evicted.Status.Conditions[0].Message = v1.PodReasonTerminationByKubelet, "The node was low on resource: memory. "
	if _, e, ok := nodetable.NewEviction(evicted); !ok || !e.At.Equal(begun) {
		t.Errorf("digest %v, %t of a victim that has succeeded", e, ok)
	}
	evicted.Status.Reason = "Preempted"
	if _, _, ok := nodetable.NewEviction(evicted); ok {
		t.Error("a pod that failed for another reason counts as evicted")
	}
}

func TestTightestSignalCountsUntilTheLeaseIsStale(t *testing.T) {
	c := plugintest.New(t, node("n"))
	set := func(levels ...nodetable.Level) {
		h := &nodetable.Headroom{Until: begun.Add(time.Minute)}
		for _, l := range levels {
			h.Signals = append(h.Signals, nodetable.SignalLevel{Signal: "nodefs.inodesFree", Level: l})
		}
		c.Table.SetHeadroom(nodetable.Intern("n"), h)
	}
	p := c.Make(pressure.New, arguments())
	at := func(now time.Time, want map[string]int64) {
		t.Helper()
		plugintest.Equal(t, "scores", evaluate(c, p, pod("", "o"), now), want)
	}
	set(nodetable.LevelOK)
	at(begun, map[string]int64{"n": 100})
	set(nodetable.LevelOK, nodetable.LevelTight)
	at(begun, map[string]int64{"n": 50})
	set(nodetable.LevelSoft, nodetable.LevelTight)
	at(begun, map[string]int64{"n": 20})
	set(nodetable.LevelHard)
	at(begun, nil)
	at(begun.Add(time.Minute), map[string]int64{"n": 100})
}

func TestPodsReturnSlowlyToANodeThatRecovers(t *testing.T) {
	c := plugintest.New(t, node("n", condition(v1.NodeDiskPressure, v1.ConditionFalse, begun)))
	p := c.Make(pressure.New, arguments()).(*pressure.Plugin)
	at := func(after time.Duration, want int64) {
		t.Helper()
		plugintest.Equal(t, after.String(), evaluate(c, p, pod("", "o"), begun.Add(after)), map[string]int64{"n": want})
	}
	arrives := framework.Assignment{Pod: c.Digest(pod("", "o")), Node: c.Table.Node(c.Table.Row(nodetable.Intern("n")))}
	at(0, 0)
	at(2*time.Minute, 40)
	p.Reserve(arrives)
	at(2*time.Minute, 20)
	p.Reserve(arrives)
	p.Unreserve(arrives)
	at(4*time.Minute, 60)
	at(5*time.Minute, 100)
	p.Reserve(arrives)
	at(5*time.Minute, 100)
}

func TestWithoutARampAConditionOfTheFutureIsNoRecovery(t *testing.T) {
	c := plugintest.New(t, node("n", condition(v1.NodeDiskPressure, v1.ConditionFalse, begun.Add(time.Minute))))
	p := c.Make(pressure.New, arguments(func(a *config.NodePressureArgs) { a.Ramp = &metav1.Duration{} }))
	plugintest.Equal(t, "scores", evaluate(c, p, pod("", "o"), begun), map[string]int64{"n": 100})
}
