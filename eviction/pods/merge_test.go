package pods_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
