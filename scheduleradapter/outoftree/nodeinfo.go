package outoftree

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// tableState has the shared state of the nodeInfos of a table.
type tableState struct {
	generation atomic.Int64
	images     atomic.Pointer[map[nodetable.Symbol]*fwk.ImageStateSummary]

	mu    sync.Mutex
	wrong map[nodetable.Row]bool // rows whose shared nodeInfo a plugin has changed
}

// nodeInfo is a fwk.NodeInfo. Those of a snapshot are shared and must not be
// changed; Snapshot returns a copy.
type nodeInfo struct {
	state      *tableState
	row        nodetable.Row // NoRow: a copy
	node       *nodetable.Node
	generation int64

	pods, withAffinity, withAntiAffinity []fwk.PodInfo
	allocatable, requested, nonZero      resources
	ports                                fwk.HostPortInfo
	claims                               map[string]int
}

// newNodeInfo makes the nodeInfo of a row. It reuses the podInfos of the previous
// one by index.
func newNodeInfo(h *tableState, row nodetable.Row, node *nodetable.Node, pods []*nodetable.Pod, before *nodeInfo) *nodeInfo {
	n := &nodeInfo{state: h, row: nodetable.NoRow, ports: fwk.HostPortInfo{}, claims: map[string]int{}, pods: make([]fwk.PodInfo, 0, len(pods))}
	n.setNode(node)
	for i, digest := range pods {
		var info *podInfo
		if before != nil && i < len(before.pods) {
			info = before.pods[i].(*podInfo)
		}
		if info == nil || info.digest != digest {
			info = newPodInfo(digest)
		}
		n.add(info)
	}
	n.row, n.generation = row, h.generation.Add(1)
	return n
}

// shows reports whether the nodeInfo has this node and these pods.
func (n *nodeInfo) shows(node *nodetable.Node, pods []*nodetable.Pod) bool {
	return n != nil && n.node == node && slices.EqualFunc(n.pods, pods, func(info fwk.PodInfo, digest *nodetable.Pod) bool {
		return info.(*podInfo).digest == digest
	})
}

// Node is the node's object; nil: only pods are known.
func (n *nodeInfo) Node() *v1.Node {
	if n == nil || n.node == nil {
		return nil
	}
	return n.node.Object
}

func (n *nodeInfo) GetPods() []fwk.PodInfo                         { return n.pods }
func (n *nodeInfo) GetPodsWithAffinity() []fwk.PodInfo             { return n.withAffinity }
func (n *nodeInfo) GetPodsWithRequiredAntiAffinity() []fwk.PodInfo { return n.withAntiAffinity }
func (n *nodeInfo) GetUsedPorts() fwk.HostPortInfo                 { return n.ports }
func (n *nodeInfo) GetRequested() fwk.Resource                     { return &n.requested }
func (n *nodeInfo) GetNonZeroRequested() fwk.Resource              { return &n.nonZero }
func (n *nodeInfo) GetAllocatable() fwk.Resource                   { return &n.allocatable }
func (n *nodeInfo) GetPVCRefCounts() map[string]int                { return n.claims }
func (n *nodeInfo) GetGeneration() int64                           { return n.generation }

// GetPodsWithRequiredNonHostScopedAntiAffinity is empty without the feature
// InterPodAffinityHostnameFastPath.
func (n *nodeInfo) GetPodsWithRequiredNonHostScopedAntiAffinity() []fwk.PodInfo { return nil }

// GetImageStates are the images of the node, with the number of nodes that had each
// when the cycle started.
func (n *nodeInfo) GetImageStates() map[string]*fwk.ImageStateSummary {
	if n.node == nil {
		return nil
	}
	known := *n.state.images.Load()
	states := make(map[string]*fwk.ImageStateSummary, len(n.node.Images))
	for _, image := range n.node.Images {
		state := known[image.Name]
		if state == nil {
			state = &fwk.ImageStateSummary{Size: image.Size, NumNodes: 1}
		}
		states[image.Name.Value()] = state
	}
	return states
}

// GetNodeDeclaredFeatures are the declared features that this release knows.
func (n *nodeInfo) GetNodeDeclaredFeatures() nodedeclaredfeatures.FeatureSet {
	var declared []string
	if n.node != nil {
		declared = n.node.Object.Status.DeclaredFeatures
	}
	return nodedeclaredfeatures.DefaultFramework.TryMap(declared)
}

// Snapshot is a copy that may be changed.
func (n *nodeInfo) Snapshot() fwk.NodeInfo {
	c := *n
	c.row = nodetable.NoRow
	c.pods, c.withAffinity, c.withAntiAffinity = slices.Clone(n.pods), slices.Clone(n.withAffinity), slices.Clone(n.withAntiAffinity)
	c.claims = maps.Clone(n.claims)
	c.allocatable.scalars, c.requested.scalars = maps.Clone(n.allocatable.scalars), maps.Clone(n.requested.scalars)
	c.ports = make(fwk.HostPortInfo, len(n.ports))
	for ip, taken := range n.ports {
		c.ports[ip] = maps.Clone(taken)
	}
	return &c
}

func (n *nodeInfo) String() string {
	name := "<nil>"
	if node := n.Node(); node != nil {
		name = node.Name
	}
	return fmt.Sprintf("node %s with %d pods, cpu %dm of %dm, memory %d of %d", name, len(n.pods), n.requested.cpu, n.allocatable.cpu, n.requested.memory, n.allocatable.memory)
}

// AddPodInfo adds a pod.
func (n *nodeInfo) AddPodInfo(info fwk.PodInfo) {
	n.changing()
	n.add(ownPodInfo(info))
}

func (n *nodeInfo) add(info *podInfo) {
	n.pods = append(n.pods, info)
	if info.hasAffinity {
		n.withAffinity = append(n.withAffinity, info)
	}
	if info.hasRequiredAgainst {
		n.withAntiAffinity = append(n.withAntiAffinity, info)
	}
	n.count(info.digest, 1)
	n.takePorts(info.digest)
}

// RemovePod removes the pod of the same uid.
func (n *nodeInfo) RemovePod(_ klog.Logger, pod *v1.Pod) error {
	i := slices.IndexFunc(n.pods, has(pod.UID))
	if i < 0 {
		return fmt.Errorf("pod %s/%s is not on the node", pod.Namespace, pod.Name)
	}
	n.changing()
	gone := n.pods[i].(*podInfo)
	n.pods = slices.Delete(n.pods, i, i+1)
	n.withAffinity = slices.DeleteFunc(n.withAffinity, has(pod.UID))
	n.withAntiAffinity = slices.DeleteFunc(n.withAntiAffinity, has(pod.UID))
	wide := !n.requested.exact() || !n.nonZero.exact()
	n.count(gone.digest, -1)
	if wide {
		n.requested, n.nonZero = resources{}, resources{}
		for _, left := range n.pods {
			n.request(left.(*podInfo).digest, 1)
		}
	}
	if len(gone.digest.Ports) > 0 {
		n.ports = fwk.HostPortInfo{}
		for _, left := range n.pods {
			n.takePorts(left.(*podInfo).digest)
		}
	}
	return nil
}

func has(uid types.UID) func(fwk.PodInfo) bool {
	return func(info fwk.PodInfo) bool { return info.(*podInfo).digest.UID == uid }
}

func (n *nodeInfo) SetNode(node *v1.Node) {
	n.changing()
	n.setNode(nodetable.NewNode(node))
}

func (n *nodeInfo) setNode(node *nodetable.Node) {
	n.node = node
	n.allocatable = resources{cpu: node.CPU, memory: node.Memory, ephemeral: node.Ephemeral, pods: int(node.Pods)}
	for _, amount := range node.Extended {
		n.allocatable.addScalar(v1.ResourceName(amount.Name.Value()), amount.Value)
	}
}

// changing increments the generation. If a plugin changes a shared nodeInfo, the
// next cycle makes it again.
func (n *nodeInfo) changing() {
	n.generation = n.state.generation.Add(1)
	if n.row != nodetable.NoRow {
		n.state.mu.Lock()
		n.state.wrong[n.row] = true
		n.state.mu.Unlock()
	}
}

func (n *nodeInfo) count(digest *nodetable.Pod, by int64) {
	n.request(digest, by)
	for i := range digest.Claims {
		key := digest.Claims[i].Key.Value()
		if n.claims[key] += int(by); n.claims[key] == 0 {
			delete(n.claims, key)
		}
	}
}

func (n *nodeInfo) request(digest *nodetable.Pod, by int64) {
	n.requested.add(&digest.Requests, by)
	n.nonZero.cpu = sum(n.nonZero.cpu, by*digest.Requests.NonZeroCPU)
	n.nonZero.memory = sum(n.nonZero.memory, by*digest.Requests.NonZeroMemory)
}

func (n *nodeInfo) takePorts(digest *nodetable.Pod) {
	for _, port := range digest.Ports {
		n.ports.Add(port.IP.Value(), string(port.Protocol), port.Number)
	}
}

// summaries are the images of all nodes.
func summaries(t *nodetable.Table) map[nodetable.Symbol]*fwk.ImageStateSummary {
	all := map[nodetable.Symbol]*fwk.ImageStateSummary{}
	for name, use := range t.Images {
		nodes := sets.New[string]()
		for _, row := range use.Rows {
			nodes.Insert(t.Node(row).Name.Value())
		}
		all[name] = &fwk.ImageStateSummary{Size: use.Size, NumNodes: len(use.Rows), Nodes: nodes}
	}
	return all
}
