package kube

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/pace"
	"github.com/evictd/evictd/nodestatus"
)

// heartbeat is how often unchanged conditions are written (kubelet,
// nodeStatusReportFrequency).
const heartbeat = 5 * time.Minute

// watchNode watches the Node, so that changes by other programs are known at once.
func (p *Publisher) watchNode(ctx context.Context) {
	observe := func(obj any) {
		if node, ok := obj.(*v1.Node); ok {
			p.nodeChanged(node)
		}
	}
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pace.Of(cache.NewListWatchFromClient(p.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.OneTermEqualSelector(metav1.ObjectNameField, p.node.Name))),
		ObjectType:    &v1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(_, obj any) { observe(obj) },
			DeleteFunc: func(any) { p.nodeDeleted() },
		},
		Transform: func(obj any) (any, error) {
			if node, ok := obj.(*v1.Node); ok {
				node.ManagedFields, node.Status.Images = nil, nil
			}
			return obj, nil
		},
	})
	controller.RunWithContext(ctx)
}

// nodeChanged stores the Node, unless a newer one is stored.
func (p *Publisher) nodeChanged(node *v1.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != nil && p.seen.UID == node.UID && version(node) < version(p.seen) {
		return
	}
	p.seen = node
	if p.mode.BuiltIn() {
		if conflict := p.conflicts.observe(node.Status.Conditions, time.Now()); conflict != "" {
			p.log.Error("another program writes the node's conditions; evictd does not write them until its next start", "conflict", conflict)
			p.requests.conflict(conflict)
			p.enqueue(p.conflictEvent(conflict))
		}
	}
	p.conditions.trigger()
	p.taints.trigger()
	if len(p.intents) > 0 {
		p.victims.trigger() // one may await the taint
	}
}

func (p *Publisher) nodeDeleted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = nil
	p.conditions.trigger()
}

// version orders states of an object: API servers number their changes.
func version(node *v1.Node) uint64 {
	n, _ := strconv.ParseUint(node.ResourceVersion, 10, 64)
	return n
}

// reportConditions patches the Node's status if it differs from the wanted one or the
// heartbeat is due. The patch names evictd's conditions only: the list merges by type.
func (p *Publisher) reportConditions(ctx context.Context) error {
	p.mu.Lock()
	seen, state, stopped := p.seen, p.state, p.conflicts.detected
	p.mu.Unlock()
	if state == nil || stopped {
		return nil
	}
	if seen == nil && p.node.Register {
		return p.register(ctx)
	}
	now := time.Now()
	wanted := p.wantedConditions(seen, now)
	if p.upToDate(seen, wanted, now) {
		p.requests.record("conditions", nil)
		return nil
	}
	status := object{"conditions": wanted}
	if p.node.Register {
		status["capacity"], status["allocatable"] = p.node.Capacity, p.node.Allocatable
	}
	p.mu.Lock()
	p.conflicts.recordWrite(wanted)
	p.mu.Unlock()
	node, err := p.client.CoreV1().Nodes().Patch(ctx, p.node.Name, types.StrategicMergePatchType, patch(object{"status": status}), metav1.PatchOptions{}, "status")
	p.requests.record("conditions", err)
	if err != nil {
		return fmt.Errorf("patch status of node %s: %w", p.node.Name, err)
	}
	p.mu.Lock()
	p.conditionsWritten = now
	p.mu.Unlock()
	p.nodeChanged(node)
	return nil
}

// upToDate says whether the Node has the wanted status and the heartbeat is not due.
func (p *Publisher) upToDate(seen *v1.Node, wanted []v1.NodeCondition, now time.Time) bool {
	p.mu.Lock()
	fresh := now.Sub(p.conditionsWritten) < heartbeat
	p.mu.Unlock()
	if seen == nil || !fresh {
		return false
	}
	for _, c := range wanted {
		has := condition(seen.Status.Conditions, c.Type)
		if has == nil || has.Status != c.Status || has.Reason != c.Reason || nodestatus.SaysOutside(has.Message) != nodestatus.SaysOutside(c.Message) {
			return false
		}
	}
	return !p.node.Register || containsAll(seen.Status.Capacity, p.node.Capacity) && containsAll(seen.Status.Allocatable, p.node.Allocatable)
}

// containsAll says whether list has every amount of wanted.
func containsAll(list, wanted v1.ResourceList) bool {
	for name, amount := range wanted {
		if has, ok := list[name]; !ok || has.Cmp(amount) != 0 {
			return false
		}
	}
	return true
}

// wantedConditions are the conditions to write; one whose status does not change keeps
// its transition time.
func (p *Publisher) wantedConditions(seen *v1.Node, now time.Time) []v1.NodeCondition {
	p.mu.Lock()
	conditions := slices.Clone(p.state.Conditions)
	p.mu.Unlock()
	contention := eviction.MemoryContention.Type()
	if seen != nil && condition(seen.Status.Conditions, contention) != nil && condition(conditions, contention) == nil {
		conditions = append(conditions, v1.NodeCondition{ // an earlier configuration had a threshold
			Type: contention, Status: v1.ConditionFalse, LastTransitionTime: metav1.NewTime(now),
			Reason: "EvictdHasNoMemoryContention", Message: "no threshold of its signals is set",
		})
	}
	if p.node.Register {
		conditions = append(conditions, v1.NodeCondition{
			Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
			Reason: nodestatus.ReasonReady, Message: "evictd protects this node",
		})
	}
	for i := range conditions {
		conditions[i].LastHeartbeatTime = metav1.NewTime(now)
		if seen == nil {
			continue
		}
		if has := condition(seen.Status.Conditions, conditions[i].Type); has != nil && has.Status == conditions[i].Status {
			conditions[i].LastTransitionTime = has.LastTransitionTime
		}
	}
	return conditions
}

func condition(all []v1.NodeCondition, kind v1.NodeConditionType) *v1.NodeCondition {
	if at := slices.IndexFunc(all, func(c v1.NodeCondition) bool { return c.Type == kind }); at >= 0 {
		return &all[at]
	}
	return nil
}

// register creates the Node of a host without a kubelet, or finds it.
func (p *Publisher) register(ctx context.Context) error {
	nodes := p.client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, p.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		conditions := p.wantedConditions(nil, time.Now())
		p.mu.Lock()
		p.conflicts.recordWrite(conditions)
		p.mu.Unlock()
		node, err = nodes.Create(ctx, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: p.node.Name, Labels: labels(p.node.Name)},
			Status: v1.NodeStatus{
				Capacity: p.node.Capacity, Allocatable: p.node.Allocatable, Conditions: conditions,
				Addresses: []v1.NodeAddress{{Type: v1.NodeHostName, Address: p.node.Name}},
				NodeInfo:  v1.NodeSystemInfo{OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH},
			},
		}, metav1.CreateOptions{})
	}
	p.requests.record("register the node", err)
	if err != nil {
		return fmt.Errorf("register node %s: %w", p.node.Name, err)
	}
	if err := p.label(ctx, node); err != nil {
		return err
	}
	p.nodeChanged(node)
	return nil
}

// label adds the well-known labels to an existing Node.
func (p *Publisher) label(ctx context.Context, node *v1.Node) error {
	want := labels(p.node.Name)
	for name, value := range node.Labels {
		if _, ours := want[name]; ours {
			want[name] = value
		}
	}
	has := map[string]string{}
	for name := range want {
		if value, ok := node.Labels[name]; ok {
			has[name] = value
		}
	}
	if equality.Semantic.DeepEqual(want, has) {
		return nil
	}
	body := patch(object{"metadata": object{"labels": want}})
	if _, err := p.client.CoreV1().Nodes().Patch(ctx, p.node.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", p.node.Name, err)
	}
	return nil
}

func labels(name string) map[string]string {
	return map[string]string{v1.LabelHostname: name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH}
}
