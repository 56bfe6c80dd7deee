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
	// refusalHolds is how long taints are left alone that the API server does
	// not let us write: a node identity may not (NodeRestriction).
	refusalHolds = 10 * time.Minute
	// raceAttempts is how often a taint is tried against other writers at once.
	raceAttempts = 5
)

// reportTaints brings the Node's taints up to date: read, modified, and written
// under the resourceVersion that was read, since a patch replaces the whole list.
// Where the API server does not let us, they are left to whoever turns conditions
// into taints.
func (p *Publisher) reportTaints(ctx context.Context) error {
	p.mu.Lock()
	node, standing, stopped, avoid := p.seen, p.standing, p.rival.stopped, p.avoid
	p.mu.Unlock()
	if node == nil || standing == nil || stopped || time.Now().Before(avoid) || !p.conditionsShow(node) {
		return nil
	}
	nodes := p.client.CoreV1().Nodes()
	for attempt := 1; ; attempt++ {
		taints, changed := p.mode.MergeTaints(node.Spec.Taints, standing.Raised)
		if !changed {
			return nil
		}
		if taints == nil {
			taints = []v1.Taint{}
		}
		body := patch(object{"metadata": object{"resourceVersion": node.ResourceVersion}, "spec": object{"taints": taints}})
		written, err := nodes.Patch(ctx, p.node.Name, types.MergePatchType, body, metav1.PatchOptions{})
		if p.requests.judge("taints", err) {
			p.log.Warn("taints are left to who turns conditions into taints", "error", err)
			p.mu.Lock()
			p.avoid = time.Now().Add(refusalHolds)
			p.mu.Unlock()
			return nil
		}
		if err == nil {
			p.observe(written)
			return nil
		}
		if !apierrors.IsConflict(err) || attempt == raceAttempts {
			return fmt.Errorf("patch taints of node %s: %w", p.node.Name, err)
		}
		if node, err = nodes.Get(ctx, p.node.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("read node %s: %w", p.node.Name, err)
		}
	}
}

// conditionsShow says whether the Node has the conditions that it should. A taint
// that came before its condition would be taken back by a controller that derives
// taints from conditions; writing the conditions makes the taints due.
func (p *Publisher) conditionsShow(node *v1.Node) bool {
	for _, wanted := range p.wanted(node, time.Now()) {
		if has := condition(node.Status.Conditions, wanted.Type); has == nil || has.Status != wanted.Status {
			return false
		}
	}
	return true
}
