// Package drain cordons a node and evicts its pods.
//
// k8s.io/kubectl/pkg/drain does not replace it: with kubectl v0.37.2 it adds 138
// packages and 1.6 MB to the 39.8 MB of a stripped evictd-scheduler for linux/amd64,
// evicts without a UID precondition, so that a retry may evict the pod that a
// StatefulSet created again on another node, and does not end a running retry delay of
// 5 s when its context ends.
package drain

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
	pollInterval = time.Second     // of the list of pods
	retryDelay   = 5 * time.Second // after a rejected eviction
)

// Drainer cordons a node and evicts its pods through the Eviction API.
type Drainer struct {
	Client kubernetes.Interface
	Node   string
	// DryRun reports the evictions and changes nothing.
	DryRun bool
	// Force also evicts pods without a controller.
	Force bool
	// Grace overrides the grace period of pods, in seconds; nil: not overridden.
	Grace    *int64
	Progress Progress
}

// Progress reports the progress of a drain.
type Progress interface {
	// Printf writes a line.
	Printf(format string, args ...any)
	// Set sets the number of deleted pods and of all pods to evict.
	Set(done, all int)
}

// eviction of a pod.
type eviction struct {
	pod      *v1.Pod
	accepted bool      // the API server has accepted the eviction, or the pod terminates
	retryAt  time.Time // zero: at once
	reason   string    // last error of the API server; empty: none
}

func (e *eviction) name() string { return e.pod.Namespace + "/" + e.pod.Name }

// Run drains the node until only pods of DaemonSets, static pods and completed pods
// are left. The error names the other pods that are left, and why.
func (d *Drainer) Run(ctx context.Context) error {
	node, err := d.Client.CoreV1().Nodes().Get(ctx, d.Node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := d.pods(ctx)
	if err != nil {
		return err
	}
	var evictions []*eviction
	var uncontrolled []string
	for i := range pods {
		pod := &pods[i]
		name := pod.Namespace + "/" + pod.Name
		if reason := exclusion(pod); reason != "" {
			d.Progress.Printf("pod %s is not evicted: %s", name, reason)
			continue
		}
		if metav1.GetControllerOf(pod) == nil && pod.DeletionTimestamp == nil {
			uncontrolled = append(uncontrolled, name)
		}
		evictions = append(evictions, &eviction{pod: pod, accepted: pod.DeletionTimestamp != nil})
	}
	if len(uncontrolled) > 0 && !d.Force {
		return fmt.Errorf("node %s: %s: no controller recreates these pods; --force evicts them", d.Node, strings.Join(uncontrolled, ", "))
	}
	if err := d.cordon(ctx, node); err != nil {
		return err
	}
	if d.DryRun {
		for _, e := range evictions {
			d.Progress.Printf("pod %s would be evicted", e.name())
		}
		return nil
	}
	return d.evictAll(ctx, evictions)
}

// exclusion is why a pod is not evicted; empty: it is evicted.
func exclusion(pod *v1.Pod) string {
	_, static := pod.Annotations[v1.MirrorPodAnnotationKey]
	controller := metav1.GetControllerOf(pod)
	switch {
	case static:
		return "static pod"
	case controller != nil && controller.Kind == "DaemonSet":
		return "pod of a DaemonSet"
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return "completed pod"
	}
	return ""
}

func (d *Drainer) cordon(ctx context.Context, node *v1.Node) error {
	switch {
	case node.Spec.Unschedulable:
		d.Progress.Printf("node %s is already cordoned", d.Node)
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

// evictAll evicts the pods and waits until they are deleted.
func (d *Drainer) evictAll(ctx context.Context, evictions []*eviction) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	all := len(evictions)
	d.Progress.Set(0, all)
	for {
		for _, e := range evictions {
			if !e.accepted && !time.Now().Before(e.retryAt) {
				d.evict(ctx, e)
			}
		}
		running, err := d.running(ctx)
		if err == nil {
			deleted := 0
			evictions = slices.DeleteFunc(evictions, func(e *eviction) bool {
				if running[e.pod.UID] {
					return false
				}
				deleted++
				d.Progress.Printf("[%d/%d] pod %s is deleted", all-len(evictions)+deleted, all, e.name())
				return true
			})
			d.Progress.Set(all-len(evictions), all)
		} else if ctx.Err() == nil {
			d.Progress.Printf("pods of node %s cannot be listed: %v", d.Node, err)
		}
		if len(evictions) == 0 {
			d.Progress.Printf("node %s is drained", d.Node)
			return nil
		}
		select {
		case <-ctx.Done():
			return d.left(ctx, evictions)
		case <-tick.C:
		}
	}
}

// left is the error for pods that were not deleted in time.
func (d *Drainer) left(ctx context.Context, evictions []*eviction) error {
	faults := []error{fmt.Errorf("drain node %s: %w: %d pods are left", d.Node, context.Cause(ctx), len(evictions))}
	for _, e := range evictions {
		reason := cmp.Or(e.reason, "not evicted yet")
		if e.accepted {
			reason = "still terminating"
		}
		faults = append(faults, fmt.Errorf("pod %s: %s", e.name(), reason))
	}
	return errors.Join(faults...)
}

// evict evicts a pod, by uid. An error of the API server is reported when it changes.
func (d *Drainer) evict(ctx context.Context, e *eviction) {
	request := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: e.pod.Namespace, Name: e.pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: d.Grace, Preconditions: metav1.NewUIDPreconditions(string(e.pod.UID))},
	}
	// MaxRetries(0): the client would wait for Retry-After and delay the other pods.
	err := d.Client.CoreV1().RESTClient().Post().Namespace(e.pod.Namespace).Resource("pods").Name(e.pod.Name).SubResource("eviction").
		MaxRetries(0).Body(request).Do(ctx).Error()
	switch {
	case err == nil || apierrors.IsNotFound(err):
		e.accepted = true
		return
	case ctx.Err() != nil:
		return
	}
	e.retryAt = time.Now().Add(retryDelay)
	if reason := err.Error(); reason != e.reason {
		e.reason = reason
		d.Progress.Printf("pod %s waits: %s", e.name(), reason)
	}
}

func (d *Drainer) pods(ctx context.Context) ([]v1.Pod, error) {
	list, err := d.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", d.Node).String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", d.Node, err)
	}
	return list.Items, nil
}

// running are the uids of the pods on the node that are not completed.
func (d *Drainer) running(ctx context.Context) (map[types.UID]bool, error) {
	pods, err := d.pods(ctx)
	running := map[types.UID]bool{}
	for i := range pods {
		if phase := pods[i].Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
			running[pods[i].UID] = true
		}
	}
	return running, err
}
