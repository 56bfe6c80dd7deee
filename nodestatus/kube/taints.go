package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// longestForbiddenTaints is the longest interval between requests for taints that the
	// API server forbids: NodeRestriction forbids them to a node identity.
	longestForbiddenTaints = 10 * time.Minute
	// conflictAttempts bounds the immediate attempts after 409 Conflict.
	conflictAttempts = 5
	// taintPatience is how long a pod is not reported as failed, and not deleted, without the
	// taint. A controller replaces the pod at once, and a scheduler may bind the new pod here.
	taintPatience = 2 * time.Second
)

// reportTaints updates the Node's taints. Where the API server forbids it, the node lifecycle controller
// derives taints from the built-in conditions.
func (p *Publisher) reportTaints(ctx context.Context) error {
	p.mu.Lock()
	node, state, stopped := p.seen, p.state, p.conflicts.detected
	p.mu.Unlock()
	if node == nil || state == nil || stopped || p.mode.BuiltIn() && !p.conditionsShow(node) {
		return nil
	}
	written, err := p.patchTaints(ctx, node, func(existing []v1.Taint) ([]v1.Taint, bool) { return p.mode.MergeTaints(existing, state.Raised) })
	if written != nil {
		p.nodeChanged(written)
	}
	return err
}

// taintsAnswered stores whether the API server forbids taints, and since when.
func (p *Publisher) taintsAnswered(forbidden bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !forbidden:
		p.taintsForbidden = time.Time{}
	case p.taintsForbidden.IsZero():
		p.taintsForbidden = time.Now()
	}
}

// awaitsTaint says whether a taint is to be written, or may have to be, and whether that is
// allowed: an API server that has just started may forbid it at first.
func (p *Publisher) awaitsTaint() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	forbidden := !p.taintsForbidden.IsZero() && time.Since(p.taintsForbidden) > taintPatience
	if p.conflicts.detected || forbidden {
		return false
	}
	if p.seen == nil || p.state == nil {
		return true
	}
	_, changed := p.mode.MergeTaints(p.seen.Spec.Taints, p.state.Raised)
	return changed
}

// taintFirst writes the taint that has to be there before a pod is deleted or has failed. It
// says whether that may happen now: the taint is written, or may not be, or could not be for
// taintPatience while the API server answered. An error says that the API server does not.
func (p *Publisher) taintFirst(ctx context.Context) (may bool, err error) {
	begun := time.Now()
	if p.awaitsTaint() {
		attempt, cancel := context.WithTimeout(ctx, taintPatience)
		defer cancel()
		if err = p.findNode(attempt); err == nil {
			err = p.reportTaints(attempt)
		}
		if apierrors.IsNotFound(err) {
			return true, nil // there is nothing to taint
		}
	}
	awaits := p.awaitsTaint()
	_, answered := errors.AsType[*apierrors.StatusError](err)
	answered = answered || err == nil || p.requests.answeredSince(begun)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !awaits || !answered {
		p.taintMissing = time.Time{}
	} else if p.taintMissing.IsZero() {
		p.taintMissing = begun
	}
	if awaits && !answered {
		return false, err
	}
	return !awaits || time.Since(p.taintMissing) >= taintPatience, nil
}

// findNode reads the Node where none is stored.
func (p *Publisher) findNode(ctx context.Context) error {
	p.mu.Lock()
	known := p.seen != nil
	p.mu.Unlock()
	if known {
		return nil
	}
	node, err := p.client.CoreV1().Nodes().Get(ctx, p.node.Name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		p.taintsAnswered(true)
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", p.node.Name, err)
	}
	p.nodeChanged(node)
	return nil
}

// conditionsShow says whether the Node has the wanted conditions. The node lifecycle
// controller would remove a built-in taint without its condition. Writing the conditions
// triggers the taints.
func (p *Publisher) conditionsShow(node *v1.Node) bool {
	for _, wanted := range p.wantedConditions(node, time.Now()) {
		if has := condition(node.Status.Conditions, wanted.Type); has == nil || has.Status != wanted.Status {
			return false
		}
	}
	return true
}
