package lifecycle

import (
	"cmp"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/node/topology"
)

// MonitorPeriod is how often a Monitor is to look at all nodes.
const MonitorPeriod = 5 * time.Second

const (
	monitorGrace = 50 * time.Second // how long a node may be silent
	startupGrace = 60 * time.Second // how long one may take that has never said whether it is ready
	agentGrace   = 40 * time.Second // evictd, where its Lease does not say
)

// excludeDisruption is the label of nodes that do not count for their zone's state.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// Sighting is a node with its Lease and that of evictd there, nil where there is
// none.
type Sighting struct {
	Node         *v1.Node
	Lease, Agent *coordinationv1.Lease
}

// Update is what has to be written to a node.
type Update struct {
	Node *v1.Node
	// Conditions that changed, or that the node did not have.
	Conditions []v1.NodeCondition
	// Taints are all that the node should have, where Retaint is set.
	Taints  []v1.Taint
	Retaint bool
	// Lost: the node was ready until now, and its silence ends that.
	Lost bool
	// Evicted: the node gets a NoExecute taint and had none of these.
	Evicted bool
}

// Monitor follows which nodes are alive, as the node lifecycle controller does: by
// changes of what they post, whatever their clocks say. Nodes that are not ready
// get NoExecute taints one after the other, at a rate by zone; none where no node
// of any zone is ready, as then it is rather this end that is cut off.
type Monitor struct {
	nodes  map[string]*health
	zones  map[string]*zone
	cutOff bool
}

// health is what a Monitor knows of a node.
type health struct {
	heartbeat    metav1.Time // of the condition Ready
	renewed      metav1.MicroTime
	probe        time.Time // when it last showed that it lives
	agentRenewed metav1.MicroTime
	agentProbe   time.Time // when evictd did
	waiting      time.Time // since when it is to get a NoExecute taint
	condemned    bool      // its turn has come
}

// finding is a node as it should be.
type finding struct {
	*health
	seen    *v1.Node
	changed []v1.NodeCondition
	node    *v1.Node // seen, with what changed
	zone    *zone
}

// NewMonitor knows no node.
func NewMonitor() *Monitor {
	return &Monitor{nodes: map[string]*health{}, zones: map[string]*zone{}}
}

// Pass looks at all nodes there are and returns what has to be written, for it to
// be told again in the next pass unless the nodes have changed.
func (m *Monitor) Pass(now time.Time, all []Sighting) (updates []Update) {
	m.forget(all)
	findings := make([]*finding, len(all))
	for i := range all {
		findings[i] = m.look(now, &all[i])
	}
	m.disrupt(now, findings)
	m.condemn(now, findings)
	for _, f := range findings {
		if u, any := m.update(now, f); any {
			updates = append(updates, u)
		}
	}
	return updates
}

// Node looks at one node between passes, as it changed; false where nothing has to
// be written.
func (m *Monitor) Node(now time.Time, s Sighting) (Update, bool) {
	return m.update(now, m.look(now, &s))
}

// forget drops the nodes that are gone.
func (m *Monitor) forget(all []Sighting) {
	there := make(map[string]bool, len(all))
	for i := range all {
		there[all[i].Node.Name] = true
	}
	maps.DeleteFunc(m.nodes, func(name string, _ *health) bool { return !there[name] })
}

// look takes in signs of life and doubts the conditions of who gives none.
func (m *Monitor) look(now time.Time, s *Sighting) *finding {
	h, known := m.nodes[s.Node.Name]
	if !known {
		h = &health{probe: now, agentProbe: now}
		m.nodes[s.Node.Name] = h
	}
	created := s.Node.CreationTimestamp
	i := indexOf(s.Node.Status.Conditions, v1.NodeReady)
	heartbeat := created
	if i >= 0 {
		heartbeat = s.Node.Status.Conditions[i].LastHeartbeatTime
	}
	if renewed(&h.renewed, s.Lease) || known && !heartbeat.Equal(&h.heartbeat) {
		h.probe = now
	}
	h.heartbeat = heartbeat
	if renewed(&h.agentRenewed, s.Agent) {
		h.agentProbe = now
	}
	f := &finding{health: h, seen: s.Node, zone: m.zone(s.Node)}
	if i >= 0 && now.After(h.probe.Add(monitorGrace)) || i < 0 && now.After(created.Add(startupGrace)) {
		f.changed = doubt(s.Node, now)
	}
	if now.After(h.agentProbe.Add(patienceWith(s.Agent))) {
		f.changed = append(f.changed, doubtOwn(s.Node, now)...)
	}
	f.node = with(s.Node, f.changed)
	return f
}

// renewed says whether a Lease has been renewed since was, which it updates; by a
// clock that was set back, too.
func renewed(was *metav1.MicroTime, lease *coordinationv1.Lease) bool {
	if lease == nil || lease.Spec.RenewTime == nil || was.Equal(lease.Spec.RenewTime) {
		return false
	}
	*was = *lease.Spec.RenewTime
	return true
}

// patienceWith is how long an evictd may be silent.
func patienceWith(lease *coordinationv1.Lease) time.Duration {
	if lease == nil || lease.Spec.LeaseDurationSeconds == nil {
		return agentGrace
	}
	return time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
}

func (m *Monitor) zone(node *v1.Node) *zone {
	key := topology.GetZoneKey(node)
	z := m.zones[key]
	if z == nil {
		z = &zone{rate: evictionRate}
		m.zones[key] = z
	}
	return z
}

// disrupt finds out the state of each zone, and what follows for its rate.
func (m *Monitor) disrupt(now time.Time, findings []*finding) {
	for _, z := range m.zones {
		z.ready, z.unready = 0, 0
	}
	counted, lit := 0, 0
	for _, f := range findings {
		status := readiness(f.node)
		if _, excluded := f.node.Labels[excludeDisruption]; excluded || status == "" {
			continue
		}
		counted++
		if status == v1.ConditionTrue {
			f.zone.ready++
			lit++
		} else {
			f.zone.unready++
		}
	}
	was := m.cutOff
	m.cutOff = counted > 0 && lit == 0
	for _, z := range m.zones {
		z.limit(now)
	}
	if m.cutOff {
		for _, h := range m.nodes {
			h.waiting, h.condemned = time.Time{}, false
		}
	} else if was {
		m.Restart(now)
	}
}

// Restart has every silence begin anew: nobody could be heard until now.
func (m *Monitor) Restart(now time.Time) {
	for _, h := range m.nodes {
		h.probe, h.agentProbe = now, now
	}
}

// condemn lets as many nodes have their NoExecute taint as their zones' rates
// allow, those first that wait longest.
func (m *Monitor) condemn(now time.Time, findings []*finding) {
	var queue []*finding
	for _, f := range findings {
		if m.noExecute(f) == "" || f.condemned {
			continue
		}
		if f.waiting.IsZero() {
			f.waiting = now
		}
		queue = append(queue, f)
	}
	slices.SortFunc(queue, func(a, b *finding) int {
		return cmp.Or(a.waiting.Compare(b.waiting), cmp.Compare(a.node.Name, b.node.Name))
	})
	for _, f := range queue {
		f.condemned = f.zone.take(now)
	}
}

// noExecute is the key of the taint that drives pods off a node, empty for none.
// A node that has one of the two has had its turn.
func (m *Monitor) noExecute(f *finding) string {
	key := ""
	switch status := readiness(f.node); {
	case m.cutOff:
		return ""
	case status == v1.ConditionFalse:
		key = v1.TaintNodeNotReady
	case status == v1.ConditionUnknown:
		key = v1.TaintNodeUnreachable
	default:
		f.waiting, f.condemned = time.Time{}, false
		return ""
	}
	f.condemned = f.condemned || evicted(f.seen)
	return key
}

// evicted says whether a node has one of the taints that drive pods off it.
func evicted(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute && isOurs(&t) })
}

func (m *Monitor) update(now time.Time, f *finding) (u Update, any bool) {
	key := m.noExecute(f)
	if !f.condemned {
		key = ""
	}
	u = Update{
		Node: f.seen, Conditions: f.changed, Evicted: key != "" && !evicted(f.seen),
		Lost: readiness(f.seen) == v1.ConditionTrue && readiness(f.node) != v1.ConditionTrue,
	}
	u.Taints, u.Retaint = retaint(f.node, key, now)
	return u, u.Retaint || len(u.Conditions) > 0
}
