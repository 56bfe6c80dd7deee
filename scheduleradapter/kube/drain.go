package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	drainLook  = time.Second     // how often to look who is gone
	drainRetry = 5 * time.Second // after a budget did not allow an eviction
)

// Drain empties a node: no more pods come, and those that are there are evicted as
// their disruption budgets and grace periods allow.
type Drain struct {
	Client kubernetes.Interface
	Node   string
	// DryRun tells what would be done and does nothing.
	DryRun bool
	// Force evicts also pods that no controller makes anew.
	Force bool
	// Grace is what pods get instead of their own period, in seconds; nil leaves them that.
	Grace    *int64
	Progress Progress
}

// Progress is told how a drain goes on.
type Progress interface {
	// Tell is a line.
	Printf(format string, args ...any)
	// Set is how many of all pods that go are gone.
	Set(done, all int)
}

// leaver is a pod on its way off the node.
type leaver struct {
	pod     *v1.Pod
	asked   bool      // it goes
	next    time.Time // to be asked again
	waiting string    // for what, told
}

func (l *leaver) name() string { return l.pod.Namespace + "/" + l.pod.Name }

// Run drains until the node is empty but for pods of daemon sets, static ones and
// those that have ended. The error names who is left, and why.
func (d *Drain) Run(ctx context.Context) error {
	node, err := d.Client.CoreV1().Nodes().Get(ctx, d.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := d.pods(ctx)
	if err != nil {
		return err
	}
	var leavers []*leaver
	var lost []string
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		if why := staying(pod); why != "" {
			d.Progress.Printf("pod %s stays: %s", name, why)
			continue
		}
		if metav1.GetControllerOf(pod) == nil && pod.DeletionTimestamp == nil {
			lost = append(lost, name)
		}
		leavers = append(leavers, &leaver{pod: pod, asked: pod.DeletionTimestamp != nil})
	}
	if len(lost) > 0 && !d.Force {
		return fmt.Errorf("node %s: no controller would make %s anew; expected --force to evict them all the same", d.Node, strings.Join(lost, ", "))
	}
	if err := d.cordon(ctx, node); err != nil {
		return err
	}
	if d.DryRun {
		for _, l := range leavers {
			d.Progress.Printf("pod %s would be evicted", l.name())
		}
		return nil
	}
	return d.empty(ctx, leavers)
}

// staying is why a pod is left alone, empty for one that has to go.
func staying(pod *v1.Pod) string {
	_, static := pod.Annotations[v1.MirrorPodAnnotationKey]
	controller := metav1.GetControllerOf(pod)
	switch {
	case static:
		return "the kubelet runs it from a file"
	case controller != nil && controller.Kind == "DaemonSet":
		return "its daemon set would put it here again"
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return "it has ended"
	}
	return ""
}

func (d *Drain) cordon(ctx context.Context, node *v1.Node) error {
	switch {
	case node.Spec.Unschedulable:
		d.Progress.Printf("node %s is cordoned already", d.Node)
		return nil
	case d.DryRun:
		d.Progress.Printf("node %s would be cordoned", d.Node)
		return nil
	}
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := d.Client.CoreV1().Nodes().Patch(ctx, d.Node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cordon node %s: %w", d.Node, err)
	}
	d.Progress.Printf("node %s is cordoned", d.Node)
	return nil
}

// empty asks and waits until everybody is gone.
func (d *Drain) empty(ctx context.Context, leavers []*leaver) error {
	tick := time.NewTicker(drainLook)
	defer tick.Stop()
	all := len(leavers)
	d.Progress.Set(0, all)
	for {
		for _, l := range leavers {
			if !l.asked && !time.Now().Before(l.next) {
				d.ask(ctx, l)
			}
		}
		there, err := d.there(ctx)
		if err == nil {
			gone := 0
			leavers = slices.DeleteFunc(leavers, func(l *leaver) bool {
				if there[l.pod.UID] {
					return false
				}
				gone++
				d.Progress.Printf("[%d/%d] pod %s is gone", all-len(leavers)+gone, all, l.name())
				return true
			})
			d.Progress.Set(all-len(leavers), all)
		} else if ctx.Err() == nil {
			d.Progress.Printf("node %s cannot be looked at: %v", d.Node, err)
		}
		if len(leavers) == 0 {
			d.Progress.Printf("node %s is drained", d.Node)
			return nil
		}
		select {
		case <-ctx.Done():
			return d.left(ctx, leavers)
		case <-tick.C:
		}
	}
}

// left says who did not go in time.
func (d *Drain) left(ctx context.Context, leavers []*leaver) error {
	faults := []error{fmt.Errorf("drain node %s: %w: %d pods are left", d.Node, context.Cause(ctx), len(leavers))}
	for _, l := range leavers {
		why := cmp.Or(l.waiting, "its eviction was not requested")
		if l.asked {
			why = "it takes its time to end"
		}
		faults = append(faults, fmt.Errorf("pod %s: %s", l.name(), why))
	}
	return errors.Join(faults...)
}

// ask evicts a pod, this very one. What the server objects to is told once.
func (d *Drain) ask(ctx context.Context, l *leaver) {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: l.pod.Namespace, Name: l.pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: d.Grace, Preconditions: metav1.NewUIDPreconditions(string(l.pod.UID))},
	}
	// A client that waits itself when told to come back would hold up the others.
	err := d.Client.CoreV1().RESTClient().Post().Namespace(l.pod.Namespace).Resource("pods").Name(l.pod.Name).SubResource("eviction").
		MaxRetries(0).Body(eviction).Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsNotFound(err):
		l.asked = true
		return
	case ctx.Err() != nil:
		return
	}
	l.next = time.Now().Add(drainRetry)
	if why := err.Error(); why != l.waiting {
		l.waiting = why
		d.Progress.Printf("pod %s waits: %s", l.name(), why)
	}
}

func (d *Drain) pods(ctx context.Context) ([]v1.Pod, error) {
	list, err := d.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.Node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", d.Node, err)
	}
	return list.Items, nil
}

// there are the pods on the node that have not ended.
func (d *Drain) there(ctx context.Context) (map[types.UID]bool, error) {
	pods, err := d.pods(ctx)
	there := map[types.UID]bool{}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			there[pods[i].UID] = true
		}
	}
	return there, err
}
