package kube

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/scheduleradapter/lifecycle"
)

// reconciler is a run of the controllers. One goroutine owns it.
type reconciler struct {
	*Controllers
	wait           *sync.WaitGroup
	changes        *changes
	leases         map[string]cache.SharedIndexInformer // by namespace
	seen           map[string]*v1.Node
	monitor        *lifecycle.Monitor
	taintEvictions *lifecycle.TaintEvictions
	writes         map[string]write // latest write by node
	probing        bool             // a request for the availability of the API server is running
	unavailable    bool             // the API server did not answer
	stale          *seenLease       // which the informer has, and the API server has another one; nil: none is known
	jobs           []job
	running        int
	done           chan func()
}

// write is a change of a node, based on a resourceVersion.
type write struct {
	based string
	ended bool
}

// job is a request, which runs on another goroutine, and the function that handles
// its result.
type job struct {
	request func(context.Context) error
	then    func(error)
}

// watch registers the event handlers. The caller calls unwatch in any case.
func (o *reconciler) watch(ctx context.Context) (synced []cache.InformerSynced, unwatch func(), err error) {
	var undo []func() error
	handle := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, failed := informer.AddEventHandler(handler)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("add an event handler: %w", failed))
			return
		}
		synced = append(synced, registration.HasSynced)
		undo = append(undo, func() error { return informer.RemoveEventHandler(registration) })
	}
	handle(o.nodes, o.changes.nodeHandler())
	handle(o.pods, o.changes.podHandler())
	if o.NodeLifecycle {
		for _, namespace := range []string{v1.NamespaceNodeLease, agentNamespace} {
			leases := coordination.NewLeaseInformer(o.client, namespace, 0, cache.Indexers{})
			o.leases[namespace] = leases
			synced = append(synced, leases.HasSynced)
			o.wait.Go(func() { leases.RunWithContext(ctx) })
		}
	}
	return synced, func() {
		for _, remove := range undo {
			if err := remove(); err != nil {
				o.log.Error("event handler is not removed", "error", err)
			}
		}
	}, err
}

func (o *reconciler) loop(ctx context.Context) {
	tick := time.NewTicker(lifecycle.MonitorPeriod)
	defer tick.Stop()
	eviction := time.NewTimer(0)
	defer eviction.Stop()
	o.takeChanges()
	o.pass()
	for {
		o.evict()
		o.startRequests(ctx)
		if at, any := o.taintEvictions.Next(); any {
			eviction.Reset(time.Until(at))
		} else {
			eviction.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-o.changes.wake:
			o.takeChanges()
		case <-tick.C:
			o.pass()
		case <-eviction.C:
		case then := <-o.done:
			o.running--
			then()
		}
	}
}

// takeChanges handles the changes, nodes first.
func (o *reconciler) takeChanges() {
	now := time.Now()
	nodes, pods := o.changes.take()
	for name, node := range nodes {
		var taints []v1.Taint
		if node == nil {
			delete(o.seen, name)
			delete(o.writes, name)
		} else {
			o.seen[name] = node
			taints = node.Spec.Taints
			o.nodeChanged(now, node)
		}
		if o.TaintEviction {
			for _, pod := range o.taintEvictions.SetNode(now, name, taints) {
				o.recordCanceled(pod)
			}
		}
	}
	for uid, pod := range pods {
		switch {
		case pod == nil:
			o.taintEvictions.RemovePod(uid)
		case o.taintEvictions.SetPod(now, pod):
			o.recordCanceled(pod)
		}
	}
}

func (o *reconciler) nodeChanged(now time.Time, node *v1.Node) {
	if !o.NodeLifecycle || o.unavailable || o.behind() || !o.settled(node) {
		return
	}
	if update, any := o.monitor.Node(now, o.nodeState(node)); any {
		o.write(update)
	}
}

// pass evaluates all nodes if the API server answers. While it does not, kubelets
// cannot renew their Leases: the grace periods restart afterwards.
func (o *reconciler) pass() {
	if !o.NodeLifecycle || o.probing {
		return
	}
	o.probing = true
	probe := func(ctx context.Context) error {
		_, err := o.client.CoordinationV1().Leases(v1.NamespaceNodeLease).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	o.jobs = append(o.jobs, job{probe, func(err error) {
		o.probing = false
		if err != nil && !o.unavailable {
			o.log.Warn("nodes are not evaluated while the API server does not answer", "error", err)
		}
		if o.unavailable && err == nil {
			o.monitor.Restart(time.Now())
		}
		if o.unavailable = err != nil; !o.unavailable && !o.behind() {
			o.evaluate()
		}
	}})
}

func (o *reconciler) evaluate() {
	all := make([]lifecycle.NodeState, 0, len(o.seen))
	for _, node := range o.seen {
		all = append(all, o.nodeState(node))
	}
	begin := time.Now()
	updates := o.monitor.Pass(begin, all)
	o.metrics.passed(o.monitor, time.Since(begin))
	for _, update := range updates {
		if o.settled(update.Node) {
			o.write(update)
		}
	}
}

func (o *reconciler) nodeState(node *v1.Node) lifecycle.NodeState {
	return lifecycle.NodeState{Node: node, Lease: o.lease(v1.NamespaceNodeLease, node.Name), Agent: o.lease(agentNamespace, agentPrefix+node.Name)}
}

func (o *reconciler) lease(namespace, name string) *coordinationv1.Lease {
	object, found, err := o.leases[namespace].GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	lease, _ := object.(*coordinationv1.Lease)
	return lease
}

// seenLease is a Lease as the informer has it; version is empty if it has none.
type seenLease struct{ namespace, name, version string }

func (o *reconciler) seenLease(namespace, name string) seenLease {
	l := seenLease{namespace: namespace, name: name}
	if lease := o.lease(namespace, name); lease != nil {
		l.version = lease.ResourceVersion
	}
	return l
}

// behind reports whether the informer still has a Lease of which the API server has a later one. No node is evaluated
// then: its informer is what the heartbeats are known by.
func (o *reconciler) behind() bool {
	if o.stale != nil && o.seenLease(o.stale.namespace, o.stale.name) != *o.stale {
		o.stale = nil
	}
	return o.stale != nil
}

// settled reports whether no write to a node is running, and the informer has
// reported the last one.
func (o *reconciler) settled(node *v1.Node) bool {
	last, any := o.writes[node.Name]
	return !any || last.ended && last.based != node.ResourceVersion
}

func (o *reconciler) startRequests(ctx context.Context) {
	for ; o.running < workers && len(o.jobs) > 0; o.running++ {
		next := o.jobs[0]
		o.jobs = o.jobs[1:]
		o.wait.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, requestLimit)
			defer cancel()
			err := next.request(bounded)
			o.done <- func() { next.then(err) }
		})
	}
}
