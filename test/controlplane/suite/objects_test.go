package suite_test

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/wait"
)

// empty removes what tests create, at once.
func (a *api) empty() {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
	defer cancel()
	now := *metav1.NewDeleteOptions(0)
	all := metav1.ListOptions{}
	core, policy := a.admin.CoreV1(), a.admin.PolicyV1()
	errs := []error{
		policy.PodDisruptionBudgets("default").DeleteCollection(ctx, now, all),
		core.Pods("default").DeleteCollection(ctx, now, all),
		core.Nodes().DeleteCollection(ctx, now, all),
		core.Events("default").DeleteCollection(ctx, now, all),
		a.admin.CoordinationV1().Leases("default").DeleteCollection(ctx, now, all),
	}
	classes, err := a.admin.SchedulingV1().PriorityClasses().List(ctx, all)
	errs = append(errs, err)
	for _, class := range classes.Items {
		if !strings.HasPrefix(class.Name, "system-") {
			errs = append(errs, a.admin.SchedulingV1().PriorityClasses().Delete(ctx, class.Name, now))
		}
	}
	for _, err := range errs {
		if err != nil {
			a.t.Errorf("empty the cluster: %v", err)
		}
	}
}

// node is ready, with 4 CPUs, 8 GiB and room for 110 pods.
func node(name string) *v1.Node {
	resources := func() v1.ResourceList {
		return v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("4"),
			v1.ResourceMemory: resource.MustParse("8Gi"),
			v1.ResourcePods:   resource.MustParse("110"),
		}
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: resources(), Allocatable: resources(),
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

// pod asks for CPUs, and leaves as soon as it is asked to.
func pod(name, cpu string, more ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []v1.Container{{Name: "main", Image: "none"}},
		},
	}
	if cpu != "" {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, change := range more {
		change(p)
	}
	return p
}
