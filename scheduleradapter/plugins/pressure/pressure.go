// Package pressure is the plugin NodePressure: it rejects nodes under memory, disk
// or PID pressure before a taint appears, avoids the node that evicted a pod of the
// same owner, and lowers the score of nodes close to a threshold or recently
// recovered. It reads the nodes' conditions and what evictd publishes; unknown
// values are neutral.
package pressure

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodePressure"

// Plugin is NodePressure.
type Plugin struct {
	table *nodetable.Table
	args  config.NodePressureArgs
	// conditions has the enabled kinds.
	conditions [kinds]bool

	// State of all nodes, for a version of the table and an instant.
	version    uint64
	at         time.Time
	short      [kinds]nodetable.Bits // by kind
	nodeScores []int64               // score by row from levels and recovery
	evicted    map[types.UID][]eviction
	// Those before, to find the rows that changed.
	shortBefore  [kinds]nodetable.Bits
	scoresBefore []int64
	applies      [kinds]bool // to the pod of SignFilter

	placed map[nodetable.Symbol]arrivals // by node, since its recovery
	now    time.Time                     // of the running attempt
}

// eviction from a node.
type eviction struct {
	row nodetable.Row
	at  time.Time
	// lasts: the node is still under the pressure that caused the eviction.
	lasts bool
}

// arrivals are pods that were placed on a recovered node.
type arrivals struct {
	recovered time.Time
	pods      int64
}

// kind of pressure.
type kind int

const (
	memory kind = iota
	disk
	pids
	kinds
)

// The condition and taint of each kind, by the kubelet's names and by evictd's own.
var pressures = [kinds]struct {
	conditions [2]v1.NodeConditionType
	taints     [2]nodetable.Taint
	reason     string
}{
	memory: {[2]v1.NodeConditionType{v1.NodeMemoryPressure, "evictd.io/MemoryPressure"}, taints(v1.TaintNodeMemoryPressure, "evictd.io/memory-pressure"), "node(s) were short of memory"},
	disk:   {[2]v1.NodeConditionType{v1.NodeDiskPressure, "evictd.io/DiskPressure"}, taints(v1.TaintNodeDiskPressure, "evictd.io/disk-pressure"), "node(s) were short of disk space or inodes"},
	pids:   {[2]v1.NodeConditionType{v1.NodePIDPressure, "evictd.io/PIDPressure"}, taints(v1.TaintNodePIDPressure, "evictd.io/pid-pressure"), "node(s) were short of process ids"},
}

func taints(keys ...string) (pair [2]nodetable.Taint) {
	for i, key := range keys {
		pair[i] = nodetable.NewTaint(&v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
	}
	return pair
}

// kindOf has the kind of a signal.
var kindOf = map[string]kind{
	"memory.available": memory, "allocatableMemory.available": memory, "swap.available": memory, "memory.stall": memory,
	"nodefs.available": disk, "nodefs.inodesFree": disk, "imagefs.available": disk, "imagefs.inodesFree": disk,
	"containerfs.available": disk, "containerfs.inodesFree": disk, "pid.available": pids,
}

const (
	// refresh bounds how long the state of all nodes is reused.
	refresh = time.Second
	// arrivalCost is the score penalty of each pod that was placed on a recovering
	// node.
	arrivalCost = 20

	evictedBit    = uint32(kinds)
	evictedReason = "node(s) had evicted a pod of the same owner and were still short of resources"
)

// levelScores are the scores by the highest level of a node's signals.
var levelScores = [...]int64{nodetable.LevelOK: framework.MaxScore, nodetable.LevelTight: 50, nodetable.LevelSoft: 20, nodetable.LevelHard: 0}

// New makes the plugin; args are a NodePressureArgs with its defaults.
func New(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodePressureArgs)
	if !ok || a.Headroom == nil || a.EvictionHalfLife == nil || a.Ramp == nil {
		return nil, fmt.Errorf("%s: arguments are %T without their defaults", Name, args)
	}
	p := &Plugin{table: env.Table, args: *a, evicted: map[types.UID][]eviction{}, placed: map[nodetable.Symbol]arrivals{}}
	for _, condition := range a.Conditions {
		if k, of := pressureOf(condition); of {
			p.conditions[k] = true
		}
	}
	return p, nil
}

func (*Plugin) Name() string { return Name }

// IgnoresPods marks that the result depends on the node only.
func (*Plugin) IgnoresPods() {}

// Filter rejects nodes under pressure unless the pod tolerates the taint; memory
// pressure rejects BestEffort pods only, like the kubelet's admission. It also
// rejects nodes that evicted a pod of the same owner for a pressure that lasts.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.update(c.Now)
	for k := range pressures {
		if applies(c.Pod, kind(k)) {
			c.RejectAll(p.short[k], 1<<k, true)
		}
	}
	for _, e := range p.evicted[nodetable.OwnerOf(c.Pod.Object)] {
		if e.lasts && c.Feasible.Has(e.row) {
			c.Reject(e.row, 1<<evictedBit, true)
		}
	}
	return framework.Status{}
}

// applies reports whether pressure of a kind rejects the pod.
func applies(pod *nodetable.Pod, k kind) bool {
	return (k != memory || pod.Object.Status.QOSClass == v1.PodQOSBestEffort) && !tolerated(pod, k)
}

func tolerated(pod *nodetable.Pod, k kind) bool {
	return slices.ContainsFunc(pressures[k].taints[:], pod.Tolerations.Tolerate)
}

func (*Plugin) Reasons(_ *nodetable.Pod, reasons uint32) []string {
	if reasons == 1<<evictedBit {
		return []string{evictedReason}
	}
	for k := range pressures {
		if reasons == 1<<k {
			return []string{pressures[k].reason}
		}
	}
	return nil
}

// Score is the minimum of three: that of the highest signal level; 100 minus a
// penalty for evictions of the same owner, which halves in each half-life; and that
// of a recovering node, which rises until the ramp ends, minus arrivalCost for each
// placed pod.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	p.update(c.Now)
	nodetable.Gather(scores, p.nodeScores, rows)
	for _, e := range p.evicted[nodetable.OwnerOf(c.Pod.Object)] {
		if i, found := slices.BinarySearch(rows, e.row); found {
			scores[i] = min(scores[i], framework.MaxScore-faded(c.Now.Sub(e.at), p.args.EvictionHalfLife.Duration))
		}
	}
	return framework.Status{}
}

// faded is the rest of 100 after a time.
func faded(age, halfLife time.Duration) int64 {
	halves := max(0, age) / halfLife
	if halves > 6 {
		return 0
	}
	whole := int64(framework.MaxScore) >> halves
	return whole - whole/2*int64(age-halves*halfLife)/int64(halfLife) // linear between the halves
}

// Reserve counts a pod on a recovering node.
func (p *Plugin) Reserve(a framework.Assignment) framework.Status {
	if recovered := p.recovered(a.Node); !recovered.IsZero() {
		since := p.placed[a.Node.Name]
		if !since.recovered.Equal(recovered) {
			since = arrivals{recovered: recovered}
		}
		since.pods++
		p.arrived(a.Node, since)
	}
	return framework.Status{}
}

func (p *Plugin) Unreserve(a framework.Assignment) {
	if since, counted := p.placed[a.Node.Name]; counted && since.pods > 0 {
		since.pods--
		p.arrived(a.Node, since)
	}
}

func (p *Plugin) arrived(node *nodetable.Node, since arrivals) {
	p.placed[node.Name] = since
	if row := p.table.Row(node.Name); row != nodetable.NoRow && int(row) < len(p.nodeScores) {
		p.nodeScores[row] = p.nodeScore(node, p.headroom(node))
	}
}

// recovered is when the last pressure of a node ended; zero: before the ramp. A new
// node counts as recovered.
func (p *Plugin) recovered(node *nodetable.Node) (last time.Time) {
	if p.args.Ramp.Duration == 0 {
		return time.Time{}
	}
	for _, c := range node.Conditions {
		if _, of := pressureOf(c.Type); of && c.Status == v1.ConditionFalse && c.Since.After(last) {
			last = c.Since
		}
	}
	if p.now.Sub(last) >= p.args.Ramp.Duration {
		return time.Time{}
	}
	return last
}

func pressureOf(condition v1.NodeConditionType) (k kind, ok bool) {
	for k := range pressures {
		if slices.Contains(pressures[k].conditions[:], condition) {
			return kind(k), true
		}
	}
	return 0, false
}

// Events are: a node was added, or its conditions or headroom changed; the tolerations
// of the pod changed.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeCondition}},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodToleration}},
	}
}
