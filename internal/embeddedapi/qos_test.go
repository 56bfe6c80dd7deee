package embeddedapi_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server counts a request of zero as none, which differs from the limit.
func TestAZeroRequestBelowTheLimitIsBurstable(t *testing.T) {
	one := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	zero := v1.ResourceList{v1.ResourceCPU: resource.MustParse("0"), v1.ResourceMemory: resource.MustParse("0")}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{
		{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: zero, Limits: one}},
	}}}
	created, err := serve(t, "").client(t).CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil || created.Status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("class %s, %v", created.Status.QOSClass, err)
	}
}
