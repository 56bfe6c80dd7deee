package pods_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
)

const capacity = 16<<30 + 12345

// sandbox of a pod whose uid is u-NAME, in a cgroup.
func sandbox(name, cgroup string, annotations ...string) inventory.Sandbox {
	s := inventory.Sandbox{ID: "s-" + name, UID: types.UID("u-" + name), Namespace: "default", Name: name, Ready: true, Cgroup: cgroup, Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations[annotations[i]] = annotations[i+1]
	}
	return s
}

func snapshotOf(containers []inventory.Container, sandboxes ...inventory.Sandbox) *inventory.Snapshot {
	return &inventory.Snapshot{Sandboxes: sandboxes, Containers: containers}
}

func running(name, in string, score int64) inventory.Container {
	return inventory.Container{ID: "c-" + name, Sandbox: "s-" + in, Name: name, State: inventory.ContainerRunning, OOMScoreAdj: &score}
}

func TestClassAndRequestsOfAPodThatOnlyTheRuntimeKnowsAreEstimated(t *testing.T) {
	limited := running("c", "p", -997)
	limited.MemoryLimit = 64 << 20
	dead := running("dead", "p", 500)
	dead.State = inventory.ContainerExited
	for _, c := range []struct {
		name       string
		cgroup     string
		containers []inventory.Container
		want       string // class, request, protection
	}{
		{"best effort by its cgroup", "/kubepods/besteffort/podu-p", []inventory.Container{running("c", "p", 1000)}, "BestEffort 0 "},
		{"burstable by its cgroup", "/kubepods/burstable/podu-p", []inventory.Container{running("c", "p", 500)}, fmt.Sprint("Burstable ", (capacity+1)/2, " ")},
		{"of two containers, one dead", "/kubepods/burstable/podu-p", []inventory.Container{running("a", "p", 999), dead, running("b", "p", 999)}, fmt.Sprint("Burstable ", 2*(capacity/1000+1), " ")},
		{"burstable by its slice", "kubepods-burstable-podu_p.slice", []inventory.Container{running("c", "p", 1000)}, "Burstable 0 "},
		{"guaranteed by its cgroup", "/kubepods/podu-p", []inventory.Container{limited}, fmt.Sprint("Guaranteed ", 64<<20, " ")},
		{"guaranteed by its score", "/elsewhere/x", []inventory.Container{limited}, fmt.Sprint("Guaranteed ", 64<<20, " ")},
		{"burstable by its score", "", []inventory.Container{running("c", "p", 999)}, fmt.Sprint("Burstable ", capacity/1000+1, " ")},
		{"nothing known", "", nil, "BestEffort 0 "},
		{"node-critical by its score", "/kubepods/burstable/podu-p", []inventory.Container{running("c", "p", -997)}, "Burstable 0 system-critical priority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := pods.Estimator{Capacity: capacity}
			all, joined := e.Match(nil, snapshotOf(c.containers, sandbox("p", c.cgroup)), "n")
			if len(all) != 1 || joined[all[0]] == nil || !e.Estimated(all[0]) {
				t.Fatalf("pods %v, want one that is estimated", all)
			}
			p := eviction.Digest(all[0])
			if got := fmt.Sprint(p.QOS, " ", p.MemoryRequest, " ", p.Protection); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// rule: M.83
func TestPodsOfKubeSystemAreProtectedUntilTheAPIServerHasListed(t *testing.T) {
	for _, c := range []struct {
		name, namespace string
		unlisted        bool
		known           map[types.UID]int32
		want            eviction.Protection
	}{
		{"before it has listed", metav1.NamespaceSystem, true, nil, eviction.CriticalPriority},
		{"of another namespace", "default", true, nil, ""},
		{"of a priority that is known", metav1.NamespaceSystem, true, map[types.UID]int32{"u-p": 0}, ""},
		{"once it has listed, or without one", metav1.NamespaceSystem, false, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := pods.Estimator{Capacity: capacity, Unlisted: c.unlisted, Priorities: c.known}
			of := sandbox("p", "/kubepods/besteffort/podu-p")
			of.Namespace = c.namespace
			all, _ := e.Match(nil, snapshotOf([]inventory.Container{running("c", "p", 1000)}, of), "n")
			bare := e.RuncPods([]inventory.RuncContainer{{ID: "c", Cgroup: "/pods/p/c", Sandbox: "s", UID: "u-p", Namespace: c.namespace, Name: "p", Container: "c"}})
			for _, pod := range []*v1.Pod{all[0], bare[0].Pod} {
				if p := eviction.Digest(pod); p.Protection != c.want {
					t.Errorf("protection %q, want %q", p.Protection, c.want)
				}
			}
		})
	}
}

func TestScoreOfAnEstimatedRequestIsTheScoreItWasEstimatedFrom(t *testing.T) {
	for score := int64(3); score < 1000; score++ {
		e := pods.Estimator{Capacity: capacity}
		all, _ := e.Match(nil, snapshotOf([]inventory.Container{running("c", "p", score)}, sandbox("p", "/kubepods/burstable/podu-p")), "n")
		request := all[0].Spec.Containers[0].Resources.Requests.Memory().Value()
		if got := 1000 - 1000*request/capacity; got != score {
			t.Errorf("request %d gives %d, not %d", request, got, score)
		}
	}
}

func TestPodThatOthersKnowIsFoundInTheRuntime(t *testing.T) {
	pod := func(name, uid string, annotations ...string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Annotations: sandbox("", "", annotations...).Annotations}}
	}
	ended := sandbox("ended", "")
	ended.Ready = false
	for _, c := range []struct {
		name  string
		known []*v1.Pod
		in    inventory.Sandbox
		want  string // pods; a star for those in the runtime, a tilde for estimated ones
	}{
		{"by uid", []*v1.Pod{pod("a", "u-a")}, sandbox("a", ""), "a*"},
		{"not by name alone", []*v1.Pod{pod("a", "new")}, sandbox("a", ""), "a a~*"},
		{"by name where it was given no uid", []*v1.Pod{pod("a", "default/a")}, sandbox("a", ""), "a*"},
		{"by name and node as a static pod of a manifest", []*v1.Pod{pod("etcd", "default/etcd")}, sandbox("etcd-n", ""), "etcd*"},
		{"by its hash as a mirror", []*v1.Pod{pod("etcd-n", "mirror", v1.MirrorPodAnnotationKey, "u-etcd-n")}, sandbox("etcd-n", ""), "etcd-n*"},
		{"by its uid, whatever others say of theirs", []*v1.Pod{pod("a", "u-a", "kubernetes.io/config.hash", "u-b"), pod("b", "u-b")}, sandbox("b", ""), "a b*"},
		{"and has its pod without", []*v1.Pod{pod("b", "u-b")}, sandbox("a", ""), "a~* b"},
		{"and is left out once it has ended", nil, ended, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := pods.Estimator{Capacity: capacity}
			all, joined := e.Match(c.known, snapshotOf(nil, c.in), "n")
			var got []string
			for _, p := range all {
				got = append(got, p.Name+map[bool]string{true: "~"}[e.Estimated(p)]+map[bool]string{true: "*"}[joined[p] != nil])
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

func TestEstimatedPodStaysTheSameValueWhileItStaysTheSame(t *testing.T) {
	e := pods.Estimator{Capacity: capacity}
	list := func(score int64) *v1.Pod {
		all, _ := e.Match(nil, snapshotOf([]inventory.Container{running("c", "p", score)}, sandbox("p", "/kubepods/burstable/podu-p", "kubernetes.io/config.source", "file")), "n")
		return all[0]
	}
	first := list(500)
	if list(500) != first {
		t.Error("another value of a pod that has not changed")
	}
	if changed := list(400); changed == first || e.Estimated(first) || !e.Estimated(changed) {
		t.Error("the same value of a pod that has changed")
	}
	if p := eviction.Digest(first); p.Protection != eviction.StaticPod {
		t.Errorf("protection %q, want that of a static pod", p.Protection)
	}
}

func TestNewestSandboxAndContainerCount(t *testing.T) {
	old, current := sandbox("p", "/old"), sandbox("p", "kubepods-burstable-podu_p.slice")
	old.ID, old.Ready, current.Attempt = "s-old", false, 1
	dead, again := running("c", "old", 500), running("c", "p", 500)
	dead.ID, dead.State = "c-old", inventory.ContainerExited
	dead.MemoryLimit = 1
	again.Created = time.Unix(1, 0)
	e := pods.Estimator{Capacity: capacity}
	all, joined := e.Match(nil, snapshotOf([]inventory.Container{dead, again}, old, current), "n")
	if len(all) != 1 || len(all[0].Spec.Containers) != 1 {
		t.Fatalf("pods %+v, want one of one container", all)
	}
	r := joined[all[0]]
	if got := r.Current("c"); got.ID != "c-c" || r.Current("other") != nil {
		t.Errorf("container %+v, want the running one", got)
	}
	if got, want := r.Cgroup(), "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_p.slice"; got != want {
		t.Errorf("cgroup %s, want %s", got, want)
	}
	limits := all[0].Spec.Containers[0].Resources.Limits
	if _, limited := limits[v1.ResourceMemory]; limited {
		t.Errorf("limits %v of a container without any", limits)
	}
}
