package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// cluster is what a scheduler is given.
type cluster struct {
	options []scheduler.Option
	objects []runtime.Object
	pod     *v1.Pod
}

// answers attempts the pod with a new scheduler for each run.
func (q *question) answers() ([]answer, error) {
	c, err := q.cluster()
	if err != nil {
		return nil, err
	}
	var different []answer
	for range max(1, q.Runs) {
		a, err := c.attempt()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(different, func(b answer) bool { return reflect.DeepEqual(a, &b) }) {
			different = append(different, *a)
		}
	}
	return different, nil
}

func (q *question) cluster() (*cluster, error) {
	c := &cluster{}
	if q.Config != "" {
		object, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(q.Config), nil, nil)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		config := object.(*schedulerapi.KubeSchedulerConfiguration)
		c.options = []scheduler.Option{scheduler.WithProfiles(config.Profiles...), scheduler.WithPercentageOfNodesToScore(config.PercentageOfNodesToScore)}
	}
	decoder := clientscheme.Codecs.UniversalDeserializer()
	for _, text := range q.Objects {
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("object %s: %w", text, err)
		}
		if pod, is := object.(*v1.Pod); is {
			corev1.SetObjectDefaults_Pod(pod)
			if name(pod) == q.Pod {
				c.pod = pod
			}
		}
		c.objects = append(c.objects, object)
	}
	if c.pod == nil {
		return nil, fmt.Errorf("pod %s is not in the cluster", q.Pod)
	}
	return c, nil
}

// attempt does what scheduler.ScheduleOne does up to the node, or to the victims.
func (c *cluster) attempt() (*answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	deleted := &deletions{}
	client := fake.NewSimpleClientset()
	client.PrependReactor("*", "*", deleted.react)
	factory, all := newFactory(client)
	snapshot := internalcache.NewEmptySnapshot()
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, profile.RecorderFactory(recorder), append(c.options, scheduler.WithNodeInfoSnapshot(snapshot))...)
	if err != nil {
		return nil, err
	}
	for _, object := range c.objects {
		informer := all[fmt.Sprintf("%T", object)]
		if informer == nil {
			return nil, fmt.Errorf("the scheduler has no informer of %T", object)
		}
		if err := informer.add(object); err != nil {
			return nil, err
		}
	}
	if err := s.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot); err != nil {
		return nil, err
	}
	o := &observed{Framework: s.Profiles[c.pod.Spec.SchedulerName], answer: answer{Filtered: map[string]rejection{}, Scores: map[string]scores{}}}
	if o.Framework == nil {
		return nil, fmt.Errorf("there is no profile %q", c.pod.Spec.SchedulerName)
	}
	info, _ := framework.NewPodInfo(c.pod) // the queue ignores the error, too
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	_, err = s.SchedulePod(ctx, o, state, &framework.QueuedPodInfo{PodInfo: info})
	if err != nil {
		o.fail(ctx, state, c.pod, err)
	}
	slices.Sort(o.Feasible)
	o.Victims = slices.Sorted(slices.Values(deleted.pods))
	return &o.answer, nil
}

func name(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// deletions are the pods that a client deleted, by namespace/name.
type deletions struct {
	mu   sync.Mutex
	pods []string
}

// react accepts all requests.
func (d *deletions) react(action clienttesting.Action) (bool, runtime.Object, error) {
	if deletion, is := action.(clienttesting.DeleteAction); is && action.GetVerb() == "delete" && action.GetResource().Resource == "pods" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.pods = append(d.pods, action.GetNamespace()+"/"+deletion.GetName())
	}
	if update, is := action.(clienttesting.UpdateAction); is {
		return true, update.GetObject(), nil
	}
	return true, &v1.Pod{}, nil
}

// observed is a framework that records what its filters and scores return.
type observed struct {
	framework.Framework
	answer
	mu sync.Mutex
}

// fail runs PostFilter where no node fits, as the scheduler does.
func (o *observed) fail(ctx context.Context, state fwk.CycleState, pod *v1.Pod, err error) {
	var fit *framework.FitError
	switch {
	case errors.Is(err, scheduler.ErrNoNodesAvailable):
	case !errors.As(err, &fit):
		o.Failed = true
	case o.HasPostFilterPlugins():
		result, status := o.RunPostFilterPlugins(ctx, state, pod, fit.Diagnosis.NodeToStatus)
		fit.Diagnosis.PostFilterMsg = status.Message()
		if result != nil && result.NominatingInfo != nil {
			o.Nominated = result.NominatedNodeName
		}
	}
	o.Message = err.Error()
}

// RunFilterPluginsWithNominatedPods records the status of a node.
func (o *observed) RunFilterPluginsWithNominatedPods(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	status := o.Framework.RunFilterPluginsWithNominatedPods(ctx, state, pod, node)
	o.mu.Lock()
	defer o.mu.Unlock()
	name := node.Node().Name
	if status.IsSuccess() {
		o.Feasible = append(o.Feasible, name)
	} else {
		o.Filtered[name] = rejection{status.Plugin(), status.Reasons(), status.Code() == fwk.Unschedulable}
	}
	return status
}

// RunScorePlugins records the scores.
func (o *observed) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodePluginScores, *fwk.Status) {
	all, status := o.Framework.RunScorePlugins(ctx, state, pod, nodes)
	for _, of := range all {
		s := scores{of.TotalScore, map[string]int64{}}
		for _, by := range of.Scores {
			s.Plugins[by.Name] = by.Score
		}
		o.Scores[of.Name] = s
	}
	return all, status
}
