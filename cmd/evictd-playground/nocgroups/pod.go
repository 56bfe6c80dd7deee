package nocgroups

import (
	"fmt"
	"strconv"
	"syscall"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/podprocess"
	"github.com/evictd/evictd/eviction/pods"
)

const namespace = "shop"

// The leak: what it takes a second, and where it stops by itself. With what all
// pods hold that is less than the node has.
const (
	leakRate = 25 * console.MiB
	leakMost = 150 * console.MiB
)

// pod is one of the node's pods: a single process in a single container.
type pod struct {
	name             string
	uid              types.UID
	requests, limits v1.ResourceList
	holds            int64 // bytes
	leaks            bool

	*podprocess.Process
}

// newPods are the four pods. At the start the crawler exceeds its request, which
// is nothing, by most; the database uses most of all and stays within its request.
func newPods() []*pod {
	memory := func(size string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(size)}
	}
	all := v1.ResourceList{v1.ResourceMemory: resource.MustParse("220Mi"), v1.ResourceCPU: resource.MustParse("100m")}
	return []*pod{
		{name: "database", uid: "6f0c5a52-6b5c-4f0e-9d38-0d1c6a1f7e01", requests: all, limits: all, holds: 180 * console.MiB},
		{name: "web", uid: "0b9a7d34-52c1-4a86-8e0f-51d2c4b36a02", requests: memory("96Mi"), holds: 56 * console.MiB},
		{name: "worker", uid: "c27e1f90-3d48-4b6a-a5d7-8f9e2b074c03", requests: memory("32Mi"), holds: 40 * console.MiB, leaks: true},
		{name: "crawler", uid: "94d3b8e6-7a1f-4c25-b0e9-2e6f5d819a04", holds: 40 * console.MiB},
	}
}

func (p *pod) String() string { return namespace + "/" + p.name }

// manifest describes the pod to evictd.
func (p *pod) manifest() *v1.Pod {
	return &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: p.name, UID: p.uid,
			Annotations: map[string]string{pods.SessionAnnotation: strconv.Itoa(p.PID())},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "app", Image: "evictd-playground",
			Resources: v1.ResourceRequirements{Requests: p.requests, Limits: p.limits},
		}}},
	}
}

// start starts the pod's process, which takes memory at Fill.
func (p *pod) start(program string) (err error) {
	size := func(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
	args := []string{"--hold", size(p.holds)}
	if p.leaks {
		args = append(args, "--leak", size(leakRate), "--cap", size(leakMost))
	}
	if p.Process, err = podprocess.Start([]string{program, "pod"}, args...); err != nil {
		return fmt.Errorf("start pod %v: %w", p, err)
	}
	return nil
}

// leak has the pod begin to take more.
func (p *pod) leak() error { return p.Signal(syscall.SIGUSR1) }
