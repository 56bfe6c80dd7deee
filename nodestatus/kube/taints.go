package kube

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// forbiddenTaintsRetry is the interval between requests for taints that the API
	// server forbids: NodeRestriction forbids them to a node identity.
	forbiddenTaintsRetry = 10 * time.Minute
	// conflictAttempts bounds the immediate attempts after 409 Conflict.
	conflictAttempts = 5
)

// reportTaints updates the Node's taints: it reads, changes and writes them under the
// resourceVersion that it read, as a patch replaces the whole list. Where the API
// server forbids it, the node lifecycle controller derives taints from the conditions.
func (p *Publisher) reportTaints(ctx context.Context) error {
	p.mu.Lock()
	node, state, stopped, avoid := p.seen, p.state, p.conflicts.detected, p.taintsRetryAt
	p.mu.Unlock()
	if node == nil || state == nil || stopped || time.Now().Before(avoid) || !p.conditionsShow(node) {
		return nil
	}
	nodes := p.client.CoreV1().Nodes()
	for attempt := 1; ; attempt++ {
		taints, changed := p.mode.MergeTaints(node.Spec.Taints, state.Raised)
		if !changed {
			return nil
		}
		if taints == nil {
			taints = []v1.Taint{}
		}
		body := patch(object{"metadata": object{"resourceVersion": node.ResourceVersion}, "spec": object{"taints": taints}})
		written, err := nodes.Patch(ctx, p.node.Name, types.MergePatchType, body, metav1.PatchOptions{})
		if p.requests.record("taints", err) {
			p.log.Warn("the API server forbids taints; they are left to the node lifecycle controller", "error", err)
			p.mu.Lock()
			p.taintsRetryAt = time.Now().Add(forbiddenTaintsRetry)
			p.mu.Unlock()
			return nil
		}
		if err == nil {
			p.nodeChanged(written)
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == conflictAttempts {
			return fmt.Errorf("patch taints of node %s: %w", p.node.Name, err)
		}
		if node, err = nodes.Get(ctx, p.node.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("read node %s: %w", p.node.Name, err)
		}
	}
}

// conditionsShow says whether the Node has the wanted conditions. The node lifecycle
// controller would remove a taint without its condition. Writing the conditions
// triggers the taints.
func (p *Publisher) conditionsShow(node *v1.Node) bool {
	for _, wanted := range p.wantedConditions(node, time.Now()) {
		if has := condition(node.Status.Conditions, wanted.Type); has == nil || has.Status != wanted.Status {
			return false
		}
	}
	return true
}
