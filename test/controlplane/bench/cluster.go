package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// clients is how many requests are under way at once.
const clients = 32

// parallel calls do for every number below n and joins the first few errors.
func parallel(ctx context.Context, n int, do func(i int) error) error {
	var wait sync.WaitGroup
	work, faults := make(chan int), make(chan error, clients)
	for range clients {
		wait.Go(func() {
			for i := range work {
				if err := do(i); err != nil {
					select {
					case faults <- err:
					default:
					}
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		work <- i
	}
	close(work)
	wait.Wait()
	close(faults)
	all := []error{ctx.Err()}
	for err := range faults {
		all = append(all, err)
	}
	return errors.Join(all...)
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// createNodes makes nodes of 4 CPUs, 32 GiB and 110 pods, in three zones.
func createNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	resources := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110"),
	}
	return parallel(ctx, n, func(i int) error {
		_, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
				v1.LabelHostname: nodeName(i), v1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3),
			}},
			Status: v1.NodeStatus{
				Capacity: resources, Allocatable: resources,
				Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

const (
	fillers   = "fillers" // namespace of the pods that fill nodes
	important = "important"
)

// fillNodes puts four pods of 1 CPU on every node, so that pods of the priority
// class, which it makes too, have to preempt.
func fillNodes(ctx context.Context, client kubernetes.Interface, n int) error {
	_, err := client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fillers}}, metav1.CreateOptions{})
	if err == nil {
		_, err = client.SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: important}, Value: 1000}, metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	return parallel(ctx, 4*n, func(i int) error {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%06d", i)},
			Spec: v1.PodSpec{
				NodeName: nodeName(i % n), TerminationGracePeriodSeconds: new(int64),
				Containers: []v1.Container{{Name: "main", Image: "none"}},
			},
		}
		pod.Spec.Containers[0].Resources.Requests = oneCPU
		_, err := client.CoreV1().Pods(fillers).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

var oneCPU = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}

// preempting is the kind of pods for which there is no room.
const preempting = "preempt"

// ask adds to a pod what its kind is about, among the pods of its group, which have
// the same labels.
var ask = map[string]func(pod *v1.Pod){
	"plain": func(*v1.Pod) {},
	"anti": func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{LabelSelector: group(pod), TopologyKey: v1.LabelHostname}},
		}}
	},
	"spread": func(pod *v1.Pod) {
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 5, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: group(pod),
		}}
	},
	preempting: func(pod *v1.Pod) {
		pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources.Requests = important, oneCPU
	},
	claiming: useClaim,
}

func group(pod *v1.Pod) *metav1.LabelSelector { return &metav1.LabelSelector{MatchLabels: pod.Labels} }

func podName(i int) string { return fmt.Sprintf("pod-%06d", i) }

// createPods makes pods of 100m and 500 MiB, a hundred in a group.
func createPods(ctx context.Context, client kubernetes.Interface, n int, kind string) error {
	more := ask[kind]
	if more == nil {
		return fmt.Errorf("-kinds: %q: expected plain, anti, spread, preempt or claims", kind)
	}
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("500Mi")}
	groups := max(1, n/100)
	return parallel(ctx, n, func(i int) error {
		labels := map[string]string{"group": fmt.Sprintf("group-%d", i%groups)}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName(i), Labels: labels},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: requests}}}},
		}
		more(pod)
		_, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// bindRoundRobin binds every pod to the next node and evaluates nothing. A pod's claim
// is written before.
func bindRoundRobin(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	claims, err := listClaims(ctx, client)
	if err != nil {
		return err
	}
	return parallel(ctx, len(pods.Items), func(i int) error {
		pod, node := &pods.Items[i], nodes.Items[i%len(nodes.Items)].Name
		if claim := claims[pod.Name]; claim != nil {
			if err := allocate(ctx, client, claim, pod, node, i/len(nodes.Items)); err != nil {
				return err
			}
		}
		return client.CoreV1().Pods(pod.Namespace).Bind(ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
			Target:     v1.ObjectReference{Kind: "Node", Name: node},
		}, metav1.CreateOptions{})
	})
}

// bindings are counted by a watch.
type bindings struct {
	begun       chan struct{} // closed when the first pod is bound
	done        chan struct{} // closed when the counting has ended
	bound       int
	first, last time.Time
}

// watchBindings counts from now on, until n pods are bound or ctx ends.
func watchBindings(ctx context.Context, client kubernetes.Interface, n int) (*bindings, error) {
	list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	// A server under load ends slow watches: this one continues at its last revision.
	w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("default").Watch(ctx, o)
		},
	})
	if err != nil {
		return nil, err
	}
	b := &bindings{begun: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(b.done)
		defer w.Stop()
		b.count(w, n)
	}()
	return b, nil
}

func (b *bindings) count(w watch.Interface, n int) {
	seen := map[string]bool{}
	for event := range w.ResultChan() {
		pod, isPod := event.Object.(*v1.Pod)
		if !isPod || pod.Spec.NodeName == "" || seen[pod.Name] {
			continue
		}
		seen[pod.Name] = true
		b.last = time.Now()
		if b.bound++; b.bound == 1 {
			b.first = b.last
			close(b.begun)
		}
		if b.bound == n {
			return
		}
	}
}

// wait returns when the counting has ended.
func (b *bindings) wait() (bound int, took time.Duration) {
	<-b.done
	return b.bound, b.last.Sub(b.first)
}
