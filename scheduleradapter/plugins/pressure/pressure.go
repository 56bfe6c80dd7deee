// Package pressure is the plugin NodePressure: pods keep off nodes that run out
// of memory, disk or process ids before a taint says so, do not come back to the
// node that evicted them, and return slowly to one that has recovered. It reads
// the nodes' conditions and what evictd says of them; what is unknown is neutral.
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

// Registration of the plugin.
var Registration = framework.Register[*Plugin](Name, New)

// Plugin is NodePressure.
type Plugin struct {
	table *nodetable.Table
	args  config.NodePressureArgs
	// conditions says of which kinds they count.
	conditions [kinds]bool

	// What is known of all nodes, as of a version of the table and a time.
	version uint64
	at      time.Time
	short   [kinds]nodetable.Bits // of memory, disk, process ids
	strain  []int64               // score by row for how near the limits are, and how long ago that was
	evicted map[types.UID][]eviction

	placed map[nodetable.Symbol]arrivals // since a node recovered
	now    time.Time                     // of the attempt that goes on
}

// eviction from a node that is known.
type eviction struct {
	row nodetable.Row
	at  time.Time
	// lasts says that the node is still short of what the pod was evicted for.
	lasts bool
}

// arrivals are pods placed on a node that has recovered.
type arrivals struct {
	recovered time.Time
	pods      int64
}

// kind of resource that a node may be short of.
type kind int

const (
	memory kind = iota
	disk
	pids
	kinds
)

// What stands for each kind: the condition and taint of the kubelet's names, and
// evictd's own beside a kubelet.
var shortages = [kinds]struct {
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

// kindOf a signal.
var kindOf = map[string]kind{
	"memory.available": memory, "allocatableMemory.available": memory,
	"nodefs.available": disk, "nodefs.inodesFree": disk, "imagefs.available": disk, "imagefs.inodesFree": disk,
	"containerfs.available": disk, "containerfs.inodesFree": disk, "pid.available": pids,
}

const (
	// refresh is how long what is known of all nodes is used, though time passes.
	refresh = time.Second
	// arrivalCost is what each pod placed on a node takes off its score while the
	// node recovers.
	arrivalCost = 20

	evictedBit    = uint32(kinds)
	evictedReason = "node(s) had evicted a pod of the same owner and were still short of resources"
)

// levelScores are what a node scores whose tightest signal is at a level.
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

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// IgnoresPods marks that only the node counts.
func (*Plugin) IgnoresPods() {}

// Filter takes out nodes that are short of something, unless the pod tolerates
// the taint that says so; those short of memory only for pods of the class
// BestEffort, as the kubelet admits them. And it takes out nodes that evicted a
// pod of the same owner for what they are still short of.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.survey(c.Now)
	for k := range shortages {
		if kind(k) == memory && c.Pod.Object.Status.QOSClass != v1.PodQOSBestEffort || tolerated(c.Pod, kind(k)) {
			continue
		}
		c.RejectAll(p.short[k], 1<<k, true)
	}
	for _, e := range p.evicted[nodetable.OwnerOf(c.Pod.Object)] {
		if e.lasts && c.Feasible.Has(e.row) {
			c.Reject(e.row, 1<<evictedBit, true)
		}
	}
	return framework.Status{}
}

func tolerated(pod *nodetable.Pod, k kind) bool {
	return slices.ContainsFunc(shortages[k].taints[:], pod.Tolerations.Tolerate)
}

// Reasons name what a node is short of.
func (*Plugin) Reasons(_ *nodetable.Pod, reasons uint32) []string {
	if reasons == 1<<evictedBit {
		return []string{evictedReason}
	}
	for k := range shortages {
		if reasons == 1<<k {
			return []string{shortages[k].reason}
		}
	}
	return nil
}

// Score is 100 for a node of which nothing is said against. It falls with the
// level of the node's tightest signal; with what is left of evictions of the same
// owner, which fade by half in the half-life; and it rises again as long as a
// node recovers, less so for each pod it has taken meanwhile. The worst counts.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	p.survey(c.Now)
	nodetable.Gather(scores, p.strain, rows)
	for _, e := range p.evicted[nodetable.OwnerOf(c.Pod.Object)] {
		if i, found := slices.BinarySearch(rows, e.row); found {
			scores[i] = min(scores[i], framework.MaxScore-faded(c.Now.Sub(e.at), p.args.EvictionHalfLife.Duration))
		}
	}
	return framework.Status{}
}

// faded is what is left of 100 after a time.
func faded(age, halfLife time.Duration) int64 {
	halves := max(0, age) / halfLife
	if halves > 6 {
		return 0
	}
	whole := int64(framework.MaxScore) >> halves
	return whole - whole/2*int64(age-halves*halfLife)/int64(halfLife) // linear between the halves
}

// Reserve counts a pod to a node that recovers.
func (p *Plugin) Reserve(a framework.Assignment) framework.Status {
	if recovered := p.recovered(a.Node.Object); !recovered.IsZero() {
		since := p.placed[a.Node.Name]
		if !since.recovered.Equal(recovered) {
			since = arrivals{recovered: recovered}
		}
		since.pods++
		p.arrived(a.Node, since)
	}
	return framework.Status{}
}

// Unreserve takes the pod off again.
func (p *Plugin) Unreserve(a framework.Assignment) {
	if since, counted := p.placed[a.Node.Name]; counted && since.pods > 0 {
		since.pods--
		p.arrived(a.Node, since)
	}
}

func (p *Plugin) arrived(node *nodetable.Node, since arrivals) {
	p.placed[node.Name] = since
	if row := p.table.Row(node.Name); row != nodetable.NoRow && int(row) < len(p.strain) {
		p.strain[row] = p.strainOn(node, p.headroom(node))
	}
}

// recovered is when a node's last pressure ended, zero where that is longer ago
// than the ramp. A node that has just come counts as one that has recovered.
func (p *Plugin) recovered(node *v1.Node) (last time.Time) {
	if p.args.Ramp.Duration == 0 {
		return time.Time{}
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if _, of := pressureOf(c.Type); of && c.Status == v1.ConditionFalse && c.LastTransitionTime.After(last) {
			last = c.LastTransitionTime.Time
		}
	}
	if p.now.Sub(last) >= p.args.Ramp.Duration {
		return time.Time{}
	}
	return last
}

func pressureOf(condition v1.NodeConditionType) (k kind, ok bool) {
	for k := range shortages {
		if slices.Contains(shortages[k].conditions[:], condition) {
			return kind(k), true
		}
	}
	return 0, false
}

// Events are: a node that came, or whose conditions or headroom have changed; and
// more tolerations of the pod.
func (*Plugin) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeCondition}},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodToleration}},
	}
}
