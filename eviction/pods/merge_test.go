package pods_test

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
)

func TestPodOfManifestAndAPIServerCountsOnce(t *testing.T) {
	pod := func(name, uid, from string, annotations ...string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid), Labels: map[string]string{"from": from}, Annotations: map[string]string{}}}
		for _, a := range annotations {
			p.Annotations[a] = "x"
		}
		return p
	}
	file := func(name, uid string, annotations ...string) *v1.Pod { return pod(name, uid, "file", annotations...) }
	cluster := func(name, uid string, annotations ...string) *v1.Pod {
		return pod(name, uid, "cluster", annotations...)
	}
	for _, c := range []struct {
		name           string
		files, cluster []*v1.Pod
		want           string
	}{
		{"as two that differ", []*v1.Pod{file("b", "1")}, []*v1.Pod{cluster("a", "2")}, "a/cluster b/file"},
		{"by name", []*v1.Pod{file("a", "1")}, []*v1.Pod{cluster("a", "2")}, "a/cluster"},
		{"by uid", []*v1.Pod{file("a", "1")}, []*v1.Pod{cluster("b", "1")}, "b/cluster"},
		{"from its manifest that says where it lives", []*v1.Pod{file("a", "1", pods.CgroupAnnotation)}, []*v1.Pod{cluster("a", "2")}, "a/file"},
		{"as a mirror", []*v1.Pod{file("etcd", "1")}, []*v1.Pod{cluster("etcd-n1", "2", v1.MirrorPodAnnotationKey)}, "etcd-n1/cluster"},
		{"as a mirror of one that says where it lives", []*v1.Pod{file("etcd", "1", pods.SessionAnnotation)}, []*v1.Pod{cluster("etcd-n1", "2", v1.MirrorPodAnnotationKey)}, "etcd/file"},
		{"unless it is no mirror", []*v1.Pod{file("etcd", "1")}, []*v1.Pod{cluster("etcd-n1", "2")}, "etcd/file etcd-n1/cluster"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, p := range pods.Merge(c.files, c.cluster, "n1") {
				got = append(got, p.Name+"/"+p.Labels["from"])
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// TestAPodIsNoMirrorBecauseItSaysSo is of a node without a kubelet: a mirror is of a manifest there.
//
// rule: M.197
func TestAPodIsNoMirrorBecauseItSaysSo(t *testing.T) {
	mirror := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{
			v1.MirrorPodAnnotationKey: "x", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x", pods.SessionAnnotation: "1",
		}}}
	}
	static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "etcd"}}
	given := []*v1.Pod{mirror("etcd-n1"), mirror("hog"), mirror("etcd-n2")}
	var plain pods.Plain
	first := plain.Pods([]*v1.Pod{static}, given, "n1")
	for i, want := range []eviction.Protection{eviction.MirrorPod, "", ""} {
		if p := eviction.Digest(first[i]); p.Protection != want || len(first[i].Annotations) == 1 != (want == "") {
			t.Errorf("%s: %q, expected %q", first[i].Name, p.Protection, want)
		}
	}
	if again := plain.Pods([]*v1.Pod{static}, given, "n1"); !slices.Equal(again, first) {
		t.Error("the pods are others the second time")
	}
	if given[1].Annotations[v1.MirrorPodAnnotationKey] == "" {
		t.Error("a pod of the API server was changed")
	}
}
