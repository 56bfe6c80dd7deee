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

// owner is one run: what it holds belongs to the goroutine in loop.
type owner struct {
	*Controllers
	wait       *sync.WaitGroup
	mail       *mailbox
	leases     map[string]cache.SharedIndexInformer // by namespace
	seen       map[string]*v1.Node
	monitor    *lifecycle.Monitor
	departures *lifecycle.Departures
	writes     map[string]write // to nodes, the latest of each
	asking     bool             // the API server whether it is there, before a pass
	away       bool             // it was not, and silence is no news
	jobs       []job
	running    int
	done       chan func()
}

// write is a change of a node, begun when the node had a resourceVersion.
type write struct {
	based string
	ended bool
}

// job is a request, which is made beside the owner, and what the owner makes of
// its end.
type job struct {
	request func(context.Context) error
	then    func(error)
}

// follow begins to listen. Unfollow is to be called in any case.
func (o *owner) follow(ctx context.Context) (synced []cache.InformerSynced, unfollow func(), err error) {
	var undo []func() error
	listen := func(informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
		registration, failed := informer.AddEventHandler(handler)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("listen to an informer: %w", failed))
			return
		}
		synced = append(synced, registration.HasSynced)
		undo = append(undo, func() error { return informer.RemoveEventHandler(registration) })
	}
	listen(o.nodes, o.mail.nodeHandler())
	listen(o.pods, o.mail.podHandler())
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
				o.log.Error("listening to an informer did not end", "error", err)
			}
		}
	}, err
}

func (o *owner) loop(ctx context.Context) {
	tick := time.NewTicker(lifecycle.MonitorPeriod)
	defer tick.Stop()
	departure := time.NewTimer(0)
	defer departure.Stop()
	o.takeMail()
	o.pass()
	for {
		o.evict()
		o.request(ctx)
		if at, any := o.departures.Next(); any {
			departure.Reset(time.Until(at))
		} else {
			departure.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-o.mail.wake:
			o.takeMail()
		case <-tick.C:
			o.pass()
		case <-departure.C:
		case then := <-o.done:
			o.running--
			then()
		}
	}
}

// takeMail takes in what changed, nodes first.
func (o *owner) takeMail() {
	now := time.Now()
	nodes, pods := o.mail.take()
	for name, node := range nodes {
		var taints []v1.Taint
		if node == nil {
			delete(o.seen, name)
			delete(o.writes, name)
		} else {
			o.seen[name] = node
			taints = node.Spec.Taints
			o.look(now, node)
		}
		if o.TaintEviction {
			for _, pod := range o.departures.SetNode(now, name, taints) {
				o.tellCancelled(pod)
			}
		}
	}
	for uid, pod := range pods {
		switch {
		case pod == nil:
			o.departures.RemovePod(uid)
		case o.departures.SetPod(now, pod):
			o.tellCancelled(pod)
		}
	}
}

// look judges a node that changed.
func (o *owner) look(now time.Time, node *v1.Node) {
	if !o.NodeLifecycle || o.away || !o.settled(node) {
		return
	}
	if update, any := o.monitor.Node(now, o.sighting(node)); any {
		o.write(update)
	}
}

// pass judges all nodes as soon as the API server has answered. Where it was away
// nobody could say that he lives: silence counts from when it is back.
func (o *owner) pass() {
	if !o.NodeLifecycle || o.asking {
		return
	}
	o.asking = true
	ask := func(ctx context.Context) error {
		_, err := o.client.CoordinationV1().Leases(v1.NamespaceNodeLease).List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	o.jobs = append(o.jobs, job{ask, func(err error) {
		o.asking = false
		if err != nil && !o.away {
			o.log.Warn("nodes are not judged while the API server does not answer", "error", err)
		}
		if o.away && err == nil {
			o.monitor.Restart(time.Now())
		}
		if o.away = err != nil; !o.away {
			o.judge()
		}
	}})
}

func (o *owner) judge() {
	all := make([]lifecycle.Sighting, 0, len(o.seen))
	for _, node := range o.seen {
		all = append(all, o.sighting(node))
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

func (o *owner) sighting(node *v1.Node) lifecycle.Sighting {
	return lifecycle.Sighting{Node: node, Lease: o.lease(v1.NamespaceNodeLease, node.Name), Agent: o.lease(agentNamespace, agentPrefix+node.Name)}
}

func (o *owner) lease(namespace, name string) *coordinationv1.Lease {
	object, found, err := o.leases[namespace].GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	lease, _ := object.(*coordinationv1.Lease)
	return lease
}

// settled says whether no write to a node is under way, and the node is seen as
// the last one left it.
func (o *owner) settled(node *v1.Node) bool {
	last, any := o.writes[node.Name]
	return !any || last.ended && last.based != node.ResourceVersion
}

// request starts the next jobs.
func (o *owner) request(ctx context.Context) {
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
