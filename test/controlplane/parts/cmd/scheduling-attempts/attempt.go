package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/features"
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
	// Either is attempted.
	pod      *v1.Pod
	podGroup string
}

// answers attempts the pod with a new scheduler for each run.
func (q *question) answers() ([]answer, error) {
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.GenericWorkload): q.PodGroups}); err != nil {
		return nil, err
	}
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
	c := &cluster{podGroup: q.PodGroup}
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
	if c.pod == nil && c.podGroup == "" {
		return nil, fmt.Errorf("pod %s is not in the cluster", q.Pod)
	}
	return c, nil
}

// attempt does what scheduler.ScheduleOne does up to the node, or to the victims.
func (c *cluster) attempt() (*answer, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	deleted := &deletions{}
	s, popped, err := c.scheduler(ctx, deleted)
	if err != nil {
		return nil, err
	}
	profile := v1.DefaultSchedulerName
	if c.pod != nil {
		profile = c.pod.Spec.SchedulerName
	}
	o := &observed{Framework: s.Profiles[profile], answer: answer{Filtered: map[string]rejection{}, Scores: map[string]scores{}, Pods: map[string]podEnd{}}}
	if o.Framework == nil {
		return nil, fmt.Errorf("there is no profile %q", profile)
	}
	if c.pod == nil {
		o.attemptPodGroup(ctx, s, popped)
	} else {
		c.attemptPod(ctx, s, o)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	slices.Sort(o.Feasible)
	o.Victims, o.Condition = deleted.all()
	return &o.answer, nil
}

// scheduler makes a scheduler that has the objects, and pops the PodGroup.
func (c *cluster) scheduler(ctx context.Context, deleted *deletions) (*scheduler.Scheduler, framework.QueuedEntityInfo, error) {
	client := fake.NewSimpleClientset()
	client.PrependReactor("*", "*", deleted.react)
	factory, all := newFactory(client)
	snapshot := internalcache.NewEmptySnapshot()
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, profile.RecorderFactory(recorder), append(c.options, scheduler.WithNodeInfoSnapshot(snapshot))...)
	if err != nil {
		return nil, nil, err
	}
	before, after := c.inOrder()
	if err := add(all, before); err != nil {
		return nil, nil, err
	}
	popped, err := c.pop(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if err := add(all, after); err != nil {
		return nil, nil, err
	}
	return s, popped, s.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot)
}

func (c *cluster) attemptPod(ctx context.Context, s *scheduler.Scheduler, o *observed) {
	info, _ := framework.NewPodInfo(c.pod) // the queue ignores the error, too
	state := framework.NewCycleState()
	state.Write(framework.PodsToActivateKey, framework.NewPodsToActivate())
	if _, err := s.SchedulePod(ctx, o, state, &framework.QueuedPodInfo{PodInfo: info}); err != nil {
		o.fail(ctx, state, c.pod, err)
	}
}

func name(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// deletions are the pods that a client deleted, by namespace/name, and the condition of a
// PodGroup that it wrote.
type deletions struct {
	mu        sync.Mutex
	pods      []string
	condition condition
}

func (d *deletions) all() (sorted []string, c condition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.pods)), d.condition
}

// react accepts all requests.
func (d *deletions) react(action clienttesting.Action) (bool, runtime.Object, error) {
	if deletion, is := action.(clienttesting.DeleteAction); is && action.GetVerb() == "delete" && action.GetResource().Resource == "pods" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.pods = append(d.pods, action.GetNamespace()+"/"+deletion.GetName())
	}
	if patch, is := action.(clienttesting.PatchAction); is && action.GetResource().Resource == "podgroups" {
		return d.podGroupPatched(patch)
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
	// first: of the best nodes, that with the first name is chosen.
	first bool
	mu    sync.Mutex
	ended bool
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
	if o.first {
		prefer(all)
	}
	return all, status
}

// prefer makes the first of the best nodes the best one.
func prefer(all []fwk.NodePluginScores) {
	best := -1
	for i, of := range all {
		if best < 0 || of.TotalScore > all[best].TotalScore || of.TotalScore == all[best].TotalScore && of.Name < all[best].Name {
			best = i
		}
	}
	if best >= 0 {
		all[best].TotalScore++
	}
}

// RunPermitPlugins records the node of a pod.
func (o *observed) RunPermitPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) (map[string]time.Duration, *fwk.Status) {
	o.mu.Lock()
	o.Pods[name(pod)] = podEnd{Node: node}
	o.mu.Unlock()
	return o.Framework.RunPermitPlugins(ctx, state, pod, node)
}

// WaitOnPermit fails at the end of the attempt: nothing is bound.
func (o *observed) WaitOnPermit(ctx context.Context, _ *v1.Pod) *fwk.Status {
	<-ctx.Done()
	return fwk.AsStatus(errEnded)
}
