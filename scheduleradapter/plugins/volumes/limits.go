package volumes

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const LimitsName = "NodeVolumeLimits"

// Limits is NodeVolumeLimits: it rejects nodes on which a CSI driver or an in-tree
// plugin would exceed its limit, and nodes without a driver that pods must not miss.
type Limits struct {
	*Storage
	csi     bool
	inTree  map[string]*defaultLimit // by plugin
	missing string                   // the first missing claim
	wanted  []attachable             // volumes of the pod, each once
}

// defaultLimit is the limit of an in-tree plugin by instance type, for nodes without their
// own limit.
type defaultLimit struct {
	config.InTreeLimit
	there *regexp.Regexp
	types map[string]int32 // cache
}

func newUsual(limit config.InTreeLimit) (*defaultLimit, error) {
	u := &defaultLimit{limit, nil, map[string]int32{}}
	var err error
	if limit.InstanceTypes != "" {
		u.there, err = regexp.Compile(limit.InstanceTypes)
	}
	return u, err
}

// on is the limit of a node; -1: none.
func (u *defaultLimit) on(node *nodetable.Node) int32 {
	if u == nil {
		return -1
	}
	label := func(key string) string {
		if value, found := node.Labels.Get(nodetable.Intern(key)); found {
			return value.Value()
		}
		return ""
	}
	name := cmp.Or(label(v1.LabelInstanceTypeStable), label(v1.LabelInstanceType))
	most, known := u.types[name]
	if !known {
		if most = u.Count; u.there != nil && u.there.MatchString(name) {
			most = u.CountThere
		}
		u.types[name] = most
	}
	return most
}

// NewLimits makes the plugin; args are a NodeVolumeLimitsArgs with its defaults.
func (s *Storage) NewLimits(args any, _ framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.NodeVolumeLimitsArgs)
	if !ok || a.CSI == nil {
		return nil, fmt.Errorf("%s: arguments are %T without their defaults", LimitsName, args)
	}
	l := &Limits{Storage: s, csi: *a.CSI, inTree: map[string]*defaultLimit{}}
	for _, limit := range a.InTree {
		u, err := newUsual(limit)
		if err != nil {
			return nil, fmt.Errorf("%s: instance types: %w", LimitsName, err)
		}
		l.inTree[limit.Plugin] = u
	}
	return l, nil
}

func (*Limits) Name() string { return LimitsName }

// Reasons of rejections. noDriver is followed by the index of the wanted volume.
const (
	tooMany uint32 = iota
	noClaim
	noDriver
)

// PreFilter skips pods without attachable volumes.
func (l *Limits) PreFilter(c *framework.Cycle) framework.Status {
	l.missing, l.wanted = "", l.wanted[:0]
	for i := range c.Pod.Disks {
		l.want(ofDisk(c.Pod.Disks[i].Source, c.Pod.Object.Namespace))
	}
	if len(l.wanted) == 0 && len(c.Pod.Claims) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	for _, used := range c.Pod.Claims {
		if l.claim(used.Key) == nil && l.missing == "" {
			l.missing = used.Name
		}
		l.want(l.ofClaim(used.Key))
	}
	return framework.Status{}
}

func (l *Limits) want(a attachable) {
	if a.handle != (nodetable.Symbol{}) && !attached(l.wanted, a) {
		l.wanted = append(l.wanted, a)
	}
}

// Filter rejects nodes whose limits the new volumes would exceed.
func (l *Limits) Filter(c *framework.Cycle) framework.Status {
	if l.missing != "" {
		c.RejectAll(c.Table.Alive(), noClaim, true)
		return framework.Status{}
	}
	if len(l.wanted) == 0 {
		return framework.Status{}
	}
	l.settle()
	if l.csi {
		l.requireDrivers(c)
	}
	for i, a := range l.wanted {
		alike := func(b attachable) bool { return b.driver == a.driver && b.plugin == a.plugin }
		if slices.ContainsFunc(l.wanted[:i], alike) {
			continue
		}
		most, inTree := l.inTree[a.plugin]
		if l.csi || inTree {
			l.check(c, a.driver, nil)
		}
		if inTree {
			l.check(c, nodetable.Intern(a.plugin), most)
		}
	}
	return framework.Status{}
}

// requireDrivers rejects nodes without the driver of a wanted volume, if its
// CSIDriver has preventPodSchedulingIfMissing.
func (l *Limits) requireDrivers(c *framework.Cycle) {
	for i, a := range l.wanted {
		driver := l.drivers[a.driver.Value()]
		if driver == nil || !ptr.Deref(driver.Spec.PreventPodSchedulingIfMissing, false) {
			continue
		}
		installed := l.ledger.columns(a.driver).installed
		for row := range c.Feasible.All() {
			if !installed[row] && l.attacher(l.table.Node(row), a) == a.driver {
				c.Reject(row, noDriver+uint32(i), false)
			}
		}
	}
}

// check rejects nodes with too many volumes of a attacher; defaultLimit applies to nodes
// without a limit, nil: none.
func (l *Limits) check(c *framework.Cycle, attacher nodetable.Symbol, usually *defaultLimit) {
	use := l.ledger.columns(attacher)
	for row := range c.Feasible.All() {
		most := use.limit[row]
		if most < 0 {
			most = usually.on(l.table.Node(row))
		}
		if most < 0 || int(use.count[row])+len(l.wanted) <= int(most) {
			continue
		}
		if fresh := l.fresh(row, attacher); fresh > 0 && use.count[row]+fresh > most {
			c.Reject(row, tooMany, false)
		}
	}
}

// fresh is the number of wanted volumes that are not attached to a row.
func (l *Limits) fresh(row nodetable.Row, attacher nodetable.Symbol) (n int32) {
	for _, a := range l.wanted {
		if l.attacher(l.table.Node(row), a) == attacher && !attached(l.ledger.rows[row], a) {
			n++
		}
	}
	return n
}

func (l *Limits) Reasons(pod *nodetable.Pod, reason uint32) []string {
	switch reason {
	case tooMany:
		return []string{"node(s) exceed max volume count"}
	case noClaim:
		return []string{fmt.Sprintf("looking up PVC %s/%s: %v", pod.Object.Namespace, l.missing, notFound("persistentvolumeclaim", l.missing))}
	}
	return []string{l.wanted[reason-noDriver].driver.Value() + " CSI driver is not installed on the node"}
}

// Events are: the limit of a node rose or it has a new driver, a driver may be missing, a
// pod with volumes was deleted, a claim of the pod changed, a volume was detached.
func (l *Limits) Events() []framework.EventHint {
	events := []framework.EventHint{
		{Event: framework.Event{Resource: framework.CSINode, Action: framework.Add | framework.Update}, Hint: changed(limitRose)},
		{Event: framework.Event{Resource: framework.CSIDriver, Action: framework.Update}, Hint: changed(mayBeMissing)},
		{Event: framework.Event{Resource: framework.AssignedPod, Action: framework.Delete}, Hint: volumesLeft},
		{Event: framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add}, Hint: claimChanged(true)},
		{Event: framework.Event{Resource: framework.VolumeAttachment, Action: framework.Delete}, Hint: detached},
	}
	if len(l.inTree) > 0 {
		events = append(events, framework.EventHint{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeAllocatable | framework.UpdateNodeLabel}})
	}
	return events
}

func mayBeMissing(was, is *storagev1.CSIDriver) bool {
	return ptr.Deref(was.Spec.PreventPodSchedulingIfMissing, false) && !ptr.Deref(is.Spec.PreventPodSchedulingIfMissing, false)
}

func limitRose(was, is *storagev1.CSINode) bool {
	has := func(node *storagev1.CSINode, driver string) bool {
		return slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == driver })
	}
	if slices.ContainsFunc(is.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return !has(was, d.Name) }) {
		return true
	}
	return slices.ContainsFunc(was.Spec.Drivers, func(old storagev1.CSINodeDriver) bool {
		limit, limited := limitOf(was, old.Name)
		after, still := limitOf(is, old.Name)
		return limited && (!still || after > limit)
	})
}

func limitOf(node *storagev1.CSINode, driver string) (limit int32, limited bool) {
	for _, d := range node.Spec.Drivers {
		if d.Name == driver && d.Allocatable != nil && d.Allocatable.Count != nil {
			return *d.Allocatable.Count, true
		}
	}
	return 0, false
}

func volumesLeft(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
	return queueIf(len(o.OldPod.Claims) > 0 || len(o.OldPod.Disks) > 0)
}

// detached returns Queue for pods with claims or with a disk of the same driver.
func detached(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	object, err := before[*storagev1.VolumeAttachment](o)
	if err != nil || object == nil {
		return framework.Queue, err
	}
	driver := nodetable.Intern(object.Spec.Attacher)
	return queueIf(len(pod.Claims) > 0 || slices.ContainsFunc(pod.Disks, func(d nodetable.Disk) bool {
		return ofDisk(d.Source, pod.Object.Namespace).driver == driver
	}))
}
