package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

// write patches a node. After a conflict the informer reports the node again; after
// another error the next pass retries.
func (o *reconciler) write(u lifecycle.Update) {
	name := u.Node.Name
	o.writes[name] = write{based: u.Node.ResourceVersion}
	var silent []seenLease
	if u.KubeletSilent {
		silent = append(silent, o.seenLease(v1.NamespaceNodeLease, name))
	}
	if u.AgentSilent {
		silent = append(silent, o.seenLease(agentNamespace, agentPrefix+name))
	}
	request := func(ctx context.Context) error {
		for _, lease := range silent {
			if err := o.confirm(ctx, lease); err != nil {
				return err
			}
		}
		return o.patchNode(ctx, u)
	}
	o.jobs = append(o.jobs, job{request, func(err error) {
		if stale, is := errors.AsType[staleError](err); is {
			o.stale = &stale.seenLease
		}
		if _, there := o.writes[name]; !there {
			return // the node is deleted
		}
		o.writes[name] = write{based: u.Node.ResourceVersion, ended: true}
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		case err != nil:
			delete(o.writes, name)
			o.log.Warn("node is not patched", "node", name, "error", err)
			return
		default:
			o.reportWrite(u)
		}
		if node := o.seen[name]; node != nil {
			o.nodeChanged(time.Now(), node)
		}
	}})
}

// staleError says that the API server has a later Lease than the informer.
type staleError struct{ seenLease }

func (e staleError) Error() string {
	return fmt.Sprintf("the Lease %s/%s was renewed, and the watch has not reported it: no node is evaluated until it does", e.namespace, e.name)
}

// confirm asks the API server whether a Lease is still as the informer has it, as kube-controller-manager does since 1.37
// before it marks a node as unknown.
func (o *reconciler) confirm(ctx context.Context, seen seenLease) error {
	live, err := o.client.CoordinationV1().Leases(seen.namespace).Get(ctx, seen.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("ask for the Lease %s/%s: %w", seen.namespace, seen.name, err)
	case live.ResourceVersion != seen.version:
		return staleError{seen}
	}
	return nil
}

// patchNode patches the conditions, then the taints, each with the uid and
// resourceVersion as precondition.
func (o *reconciler) patchNode(ctx context.Context, u lifecycle.Update) error {
	version := u.Node.ResourceVersion
	if len(u.Conditions) > 0 {
		patch := about{Metadata: identity{ResourceVersion: version}, Status: map[string]any{"conditions": u.Conditions}}
		node, err := o.client.CoreV1().Nodes().Patch(ctx, u.Node.Name, types.StrategicMergePatchType, patch.encode(), metav1.PatchOptions{}, "status")
		if err != nil {
			return fmt.Errorf("patch conditions of node %s: %w", u.Node.Name, err)
		}
		version = node.ResourceVersion
	}
	if u.Retaint {
		patch := about{Metadata: identity{ResourceVersion: version}, Spec: map[string]any{"taints": u.Taints}}
		_, err := o.client.CoreV1().Nodes().Patch(ctx, u.Node.Name, types.MergePatchType, patch.encode(), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("patch taints of node %s: %w", u.Node.Name, err)
		}
	}
	return nil
}

func (o *reconciler) reportWrite(u lifecycle.Update) {
	if u.Retaint {
		o.log.Info("taints of node change", "node", u.Node.Name, "taints", keys(u.Taints), "old", keys(u.Node.Spec.Taints))
	}
	if len(u.Conditions) > 0 {
		o.log.Info("node has no heartbeat", "node", u.Node.Name)
	}
	if u.Evicted {
		o.metrics.evicted(u.Node)
	}
	if u.Lost {
		o.recorder.Eventf(u.Node, nil, v1.EventTypeNormal, "NodeNotReady", "Monitoring", "Node %s status is now: NodeNotReady", u.Node.Name)
		o.unready(u.Node.Name)
	}
}

func keys(taints []v1.Taint) (texts []string) {
	for i := range taints {
		texts = append(texts, taints[i].ToString())
	}
	return texts
}

// unready sets the condition Ready=False of the pods on an unreachable node, as the
// node lifecycle controller does.
func (o *reconciler) unready(node string) {
	for _, object := range o.pods.GetStore().List() {
		pod, ok := object.(*v1.Pod)
		if !ok || pod.Spec.NodeName != node || !slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}) {
			continue
		}
		request := func(ctx context.Context) error {
			return o.patchPod(ctx, pod, v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.Now()})
		}
		o.jobs = append(o.jobs, job{request, func(err error) {
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				o.log.Warn("pod on an unreachable node is not marked as not ready", "pod", pod.Namespace+"/"+pod.Name, "node", node, "error", err)
			}
		}})
	}
}

// evict deletes the pods whose evictions are due. Disruption budgets do not apply,
// as in Kubernetes.
func (o *reconciler) evict() {
	for _, d := range o.taintEvictions.Due(time.Now()) {
		pod := d.Pod
		request := func(ctx context.Context) error { return o.deletePod(ctx, pod) }
		o.jobs = append(o.jobs, job{request, func(err error) {
			name := pod.Namespace + "/" + pod.Name
			switch {
			case apierrors.IsNotFound(err):
			case err != nil: // Retry does nothing if another pod has the name
				o.log.Warn("pod is not evicted", "pod", name, "node", pod.Spec.NodeName, "taint", d.Taint.ToString(), "error", err)
				o.taintEvictions.Retry(pod.UID, time.Now().Add(retryAfter))
			default:
				o.metrics.deleted(d.Since)
				o.log.Info("pod is evicted", "pod", name, "node", pod.Spec.NodeName, "taint", d.Taint.ToString())
				o.recorder.Eventf(pod, nil, v1.EventTypeNormal, "TaintManagerEviction", "Evicting", "Marking for deletion Pod %s", name)
			}
		}})
	}
}

func (o *reconciler) deletePod(ctx context.Context, pod *v1.Pod) error {
	err := o.patchPod(ctx, pod, v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "DeletionByTaintManager",
		Message: "Taint manager: deleting due to NoExecute taint", LastTransitionTime: metav1.Now(),
	})
	if err != nil {
		return err
	}
	err = o.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// patchPod sets a condition of a pod, by uid.
func (o *reconciler) patchPod(ctx context.Context, pod *v1.Pod, condition v1.PodCondition) error {
	patch := about{Metadata: identity{UID: pod.UID}, Status: map[string]any{"conditions": []v1.PodCondition{condition}}}
	_, err := o.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch.encode(), metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch condition %s of pod %s/%s: %w", condition.Type, pod.Namespace, pod.Name, err)
	}
	return nil
}

func (o *reconciler) recordCanceled(pod *v1.Pod) {
	o.log.Info("eviction of pod is canceled", "pod", pod.Namespace+"/"+pod.Name, "node", pod.Spec.NodeName)
	o.recorder.Eventf(pod, nil, v1.EventTypeNormal, "TaintManagerEviction", "Cancelling", "Cancelling deletion of Pod %s/%s", pod.Namespace, pod.Name)
}

// about is a patch with its target.
type about struct {
	Metadata identity       `json:"metadata"`
	Spec     map[string]any `json:"spec,omitempty"`
	Status   map[string]any `json:"status,omitempty"`
}

type identity struct {
	UID             types.UID `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
}

// encode returns JSON; values of API types do not fail.
func (a about) encode() []byte {
	data, err := json.Marshal(a)
	if err != nil {
		panic("lifecycle: " + err.Error())
	}
	return data
}
