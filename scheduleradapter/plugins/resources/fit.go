package resources

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	config "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const FitName = "NodeResourcesFit"

// Fit rejects nodes without enough free resources, and scores nodes by their usage
// with the pod.
type Fit struct {
	table   *nodetable.Table
	env     framework.Env
	ignores func(resource string) bool
	// hasClass reports whether DynamicResources allocates an extended resource on
	// nodes without an allocatable amount.
	hasClass func(nodetable.Symbol) bool
	rate     rating
	measured []measured
	columns  []column // of the pod of PreScore
	needs    []need   // of the pod of Filter
	scores   memos
}

// Bits of the missing resources; each extended resource of the pod has a bit from
// extendedBit on.
const (
	podsBit = iota
	cpuBit
	memoryBit
	ephemeralBit
	extendedBit
	lastBit = 31
)

// need is a resource that a pod requests.
type need struct {
	nodetable.Amounts
	request int64
	bit     int
	// devices: a device class provides the resource on nodes without an allocatable
	// amount.
	devices bool
	// lacking are the rows of the current word that lack it, never those whose
	// allocatable amount is less.
	lacking, never uint64
}

// NewFit makes the plugin; args are a NodeResourcesFitArgs with its defaults.
func NewFit(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeResourcesFitArgs)
	if !ok || a.ScoringStrategy == nil {
		return nil, fmt.Errorf("%s: arguments are %T without a scoring strategy", FitName, args)
	}
	rate, err := newRating(a.ScoringStrategy)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", FitName, err)
	}
	hasClass := env.HasDeviceClass
	if hasClass == nil {
		hasClass = func(nodetable.Symbol) bool { return false }
	}
	return &Fit{
		table: env.Table, env: env, hasClass: hasClass, ignores: ignoring(a), rate: rate, measured: newMeasured(a.ScoringStrategy.Resources, false),
		scores: newMemos(),
	}, nil
}

// ignoring reports the ignored extended resources: by name, or by group, the part
// before the slash.
func ignoring(a *config.NodeResourcesFitArgs) func(string) bool {
	names, groups := map[string]bool{}, map[string]bool{}
	for _, name := range a.IgnoredResources {
		names[name] = true
	}
	for _, group := range a.IgnoredResourceGroups {
		groups[group] = true
	}
	return func(resource string) bool {
		group, _, extended := strings.Cut(resource, "/")
		return extended && !strings.Contains(resource, v1.ResourceDefaultNamespacePrefix) && (names[resource] || groups[group])
	}
}

func (*Fit) Name() string { return FitName }

// Filter rejects nodes without a free pod slot or a requested resource;
// unresolvable if the allocatable amount is less.
func (f *Fit) Filter(c *framework.Cycle) framework.Status {
	f.digest(&c.Pod.Requests)
	for word, feasible := range c.Feasible {
		if feasible == 0 {
			continue
		}
		rejected := uint64(0)
		for i := range f.needs {
			n := &f.needs[i]
			n.lacking, n.never = n.Lacking(n.request, word)
			n.exempt(word)
			rejected |= n.lacking
		}
		for rejected &= feasible; rejected != 0; {
			alike, reasons, unresolvable := f.rejection(rejected)
			c.RejectWord(word, alike, reasons, unresolvable)
			rejected &^= alike
		}
	}
	return framework.Status{}
}

// exempt clears the rows on which devices provide the resource.
func (n *need) exempt(word int) {
	if !n.devices {
		return
	}
	for rows := n.lacking; rows != 0; rows &= rows - 1 {
		if i := bits.TrailingZeros64(rows); n.AllocatableOn(nodetable.Row(word<<6+i)) == 0 {
			n.lacking &^= 1 << i
			n.never &^= 1 << i
		}
	}
}

// rejection is the rejection of the first row, and the rows with the same one.
func (f *Fit) rejection(rows uint64) (alike uint64, reasons uint32, unresolvable bool) {
	first := rows & -rows
	alike = rows
	for i := range f.needs {
		n := &f.needs[i]
		if n.lacking&first == 0 {
			alike &^= n.lacking
			continue
		}
		alike &= n.lacking
		reasons |= 1 << n.bit
		if n.bit == podsBit {
			continue
		}
		if n.never&first == 0 {
			alike &^= n.never
		} else {
			alike &= n.never
			unresolvable = true
		}
	}
	return alike, reasons, unresolvable
}

// digest lists the requests that are not ignored.
func (f *Fit) digest(r *nodetable.Requests) {
	t := f.table
	f.needs = f.needs[:0]
	add := func(column nodetable.Amounts, request int64, bit int) {
		if request > 0 {
			f.needs = append(f.needs, need{Amounts: column, request: request, bit: bit})
		}
	}
	add(&t.Pods, 1, podsBit)
	add(&t.CPU, r.CPU, cpuBit)
	add(&t.Memory, r.Memory, memoryBit)
	add(&t.Ephemeral, r.Ephemeral, ephemeralBit)
	for i, a := range r.Extended {
		if !f.ignores(a.Name.Value()) {
			if add(t.Extended(a.Name), a.Value, min(extendedBit+i, lastBit)); a.Value > 0 {
				f.needs[len(f.needs)-1].devices = f.hasClass(a.Name)
			}
		}
	}
}

// DecidesBySums is true if the pod requests no resource that only some nodes have.
func (f *Fit) DecidesBySums(c *framework.Cycle) bool {
	return !slices.ContainsFunc(c.Pod.Requests.Extended, func(a nodetable.Amount) bool { return a.Value > 0 && !f.ignores(a.Name.Value()) })
}

// ReasonsWith are the resources that are missing with these free amounts.
func (f *Fit) ReasonsWith(c *framework.Cycle, free nodetable.Sum) (rejection uint32) {
	r := &c.Pod.Requests
	lacks := func(request, free int64, bit int) {
		if request > 0 && request > free {
			rejection |= 1 << bit
		}
	}
	lacks(1, free.Pods, podsBit)
	lacks(r.CPU, free.CPU, cpuBit)
	lacks(r.Memory, free.Memory, memoryBit)
	lacks(r.Ephemeral, free.Ephemeral, ephemeralBit)
	return rejection
}

func (*Fit) Reasons(pod *nodetable.Pod, rejection uint32) []string {
	native := [...]string{"Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient ephemeral-storage"}
	var reasons []string
	for ; rejection != 0; rejection &= rejection - 1 {
		if bit := bits.TrailingZeros32(rejection); bit < extendedBit {
			reasons = append(reasons, native[bit])
		} else {
			reasons = append(reasons, "Insufficient "+pod.Requests.Extended[bit-extendedBit].Name.Value())
		}
	}
	return reasons
}

// Score rates the usage of a node with the pod by the scoring strategy, averaged by
// the weights of the resources.
func (f *Fit) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	f.columns = columns(f.columns[:0], f.table, f.measured, &c.Pod.Requests)
	f.scores.score(c.Pod.Requests.Shape, f.table, rows, scores, func(values []int64, from nodetable.Row) { f.rate(f.columns, values, from) })
	return framework.Status{}
}

// SignFilter is not ok for a pod with resources that devices may provide.
func (f *Fit) SignFilter(c *framework.Cycle, _ *framework.Signature) (width int, ok bool) {
	f.digest(&c.Pod.Requests)
	return 0, !slices.ContainsFunc(f.needs, func(n need) bool { return n.devices })
}

// FitsRow is false for a node without a free pod slot or a requested resource.
func (f *Fit) FitsRow(_ *framework.Cycle, row nodetable.Row) bool {
	for i := range f.needs {
		if n := &f.needs[i]; n.request > n.Free(row) {
			return false
		}
	}
	return true
}

// SignScore prepares ScoreSpan.
func (f *Fit) SignScore(c *framework.Cycle, _ *framework.Signature) (scores, ok bool) {
	f.columns = columns(f.columns[:0], f.table, f.measured, &c.Pod.Requests)
	return true, true
}

// ScoreSpan rates consecutive rows.
func (f *Fit) ScoreSpan(_ *framework.Cycle, from nodetable.Row, scores []int64) {
	f.rate(f.columns, scores, from)
}

// Events are: a pod was deleted or scaled down; the allocatable amount of a node
// changed; the pod was scaled down.
func (f *Fit) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete | framework.UpdatePodScaleDown}, Hint: f.podLeft},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeAllocatable}, Hint: f.nodeGrew},
		{Event: framework.Event{Resource: framework.TargetPod, Action: framework.UpdatePodScaleDown}},
		{Event: framework.Event{Resource: framework.DeviceClass, Action: framework.Add | framework.Update}, Hint: classProvides},
	}
}

// nodeGrew returns Queue if the pod fits the empty node and a requested resource of
// the node grew.
func (f *Fit) nodeGrew(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	devices := false
	for name, request := range f.requested(&pod.Requests) {
		offered := offer(o.Node, name)
		if offered == 0 && f.hasClass(name) {
			devices = true
		} else if request > offered {
			return framework.QueueSkip, nil
		}
	}
	if devices {
		return framework.Queue, nil
	}
	if o.OldNode == nil || o.Node.Pods > o.OldNode.Pods {
		return framework.Queue, nil
	}
	return f.grew(&pod.Requests, func(name nodetable.Symbol) int64 { return offer(o.Node, name) - offer(o.OldNode, name) }), nil
}

// classProvides returns Queue if a device class was added, or has another extended
// resource, and provides a resource that the pod requests.
func classProvides(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	is, ok := o.Object.(*resourceapi.DeviceClass)
	if !ok {
		return framework.Queue, fmt.Errorf("event %s is about a %T", o.Event, o.Object)
	}
	was, changed := o.OldObject.(*resourceapi.DeviceClass)
	if changed && ptr.Equal(was.Spec.ExtendedResourceName, is.Spec.ExtendedResourceName) {
		return framework.QueueSkip, nil
	}
	names := []string{ptr.Deref(is.Spec.ExtendedResourceName, "")}
	if !changed {
		names = append(names, resourceapi.ResourceDeviceClassPrefix+is.Name)
	}
	if slices.ContainsFunc(pod.Requests.Extended, func(a nodetable.Amount) bool { return slices.Contains(names, a.Name.Value()) }) {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}

func (f *Fit) grew(r *nodetable.Requests, by func(nodetable.Symbol) int64) framework.Hint {
	for name := range f.requested(r) {
		if by(name) > 0 {
			return framework.Queue
		}
	}
	return framework.QueueSkip
}

// requested yields the requests that are not ignored.
func (f *Fit) requested(r *nodetable.Requests) func(func(nodetable.Symbol, int64) bool) {
	return func(yield func(nodetable.Symbol, int64) bool) {
		for _, name := range nativeNames {
			if n := amount(r, name); n > 0 && !yield(name, n) {
				return
			}
		}
		for _, a := range r.Extended {
			if a.Value > 0 && !f.ignores(a.Name.Value()) && !yield(a.Name, a.Value) {
				return
			}
		}
	}
}
