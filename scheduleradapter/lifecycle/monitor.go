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

// MonitorPeriod is the interval of Monitor.Pass. Source: node-monitor-period.
const MonitorPeriod = 5 * time.Second

const (
	monitorGrace = 50 * time.Second // without heartbeats; source: node-monitor-grace-period
	startupGrace = 60 * time.Second // for a node without the condition Ready; source: node-startup-grace-period
	agentGrace   = 40 * time.Second // of evictd, if its Lease has no duration
)

// excludeDisruption is the label of nodes that do not count for the state of their
// zone.
const excludeDisruption = "node.kubernetes.io/exclude-disruption"

// NodeState is a node with its Lease and that of its evictd; nil: there is none.
type NodeState struct {
	Node         *v1.Node
	Lease, Agent *coordinationv1.Lease
}

// Update is a write to a node.
type Update struct {
	Node *v1.Node
	// Conditions that changed or are new, since the Lease of the kubelet, or that of evictd, was not renewed in time.
	Conditions                 []v1.NodeCondition
	KubeletSilent, AgentSilent bool
	// Taints are all taints of the node, if Retaint is set.
	Taints  []v1.Taint
	Retaint bool
	// Lost: the condition Ready changes from True to Unknown.
	Lost bool
	// Evicted: the node gets its first NoExecute taint.
	Evicted bool
}

// Monitor follows the heartbeats of nodes, as the node lifecycle controller does:
// by changes of their values, not by their clocks. Nodes that are not ready get
// NoExecute taints at a rate by zone; if no node of any zone is ready, none does.
type Monitor struct {
	nodes   map[string]*health
	zones   map[string]*zone
	cutOff  bool
	waiting bool // see Waiting
}

// health is the state of a node.
type health struct {
	heartbeat    metav1.Time // of the condition Ready
	renewed      metav1.MicroTime
	probe        time.Time // time of the last heartbeat
	agentRenewed metav1.MicroTime
	agentProbe   time.Time // time of the last heartbeat of evictd
	waiting      time.Time // since when the node waits for a NoExecute taint; zero: it does not
	allowed      bool      // the rate allows the NoExecute taint
}

// finding is a node in its target state.
type finding struct {
	*health
	seen    *v1.Node
	changed []v1.NodeCondition
	node    *v1.Node // with the changed conditions
	silent  struct{ kubelet, agent bool }
	zone    *zone
}

// NewMonitor makes a Monitor without nodes.
func NewMonitor() *Monitor {
	return &Monitor{nodes: map[string]*health{}, zones: map[string]*zone{}}
}

// Pass evaluates all nodes and returns the writes. A write that is not done is
// returned again by the next pass.
func (m *Monitor) Pass(now time.Time, all []NodeState) (updates []Update) {
	m.forget(all)
	findings := make([]*finding, len(all))
	for i := range all {
		findings[i] = m.look(now, &all[i])
	}
	m.disrupt(now, findings)
	m.allowTaints(now, findings)
	for _, f := range findings {
		if u, any := m.update(now, f); any {
			updates = append(updates, u)
		}
	}
	return updates
}

// Node evaluates a changed node between passes; false: there is no write.
func (m *Monitor) Node(now time.Time, s NodeState) (Update, bool) {
	return m.update(now, m.look(now, &s))
}

func (m *Monitor) forget(all []NodeState) {
	there := make(map[string]bool, len(all))
	for i := range all {
		there[all[i].Node.Name] = true
	}
	maps.DeleteFunc(m.nodes, func(name string, _ *health) bool { return !there[name] })
}

// look reads the heartbeats of a node and computes its conditions.
func (m *Monitor) look(now time.Time, s *NodeState) *finding {
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
		f.changed = setUnknown(s.Node, now)
		f.silent.kubelet = len(f.changed) > 0
	}
	if now.After(h.agentProbe.Add(agentGraceOf(s.Agent))) {
		own := setOwnUnknown(s.Node, now)
		f.changed = append(f.changed, own...)
		f.silent.agent = len(own) > 0
	}
	f.node = with(s.Node, f.changed)
	return f
}

// renewed reports whether renewTime differs from was, and updates was.
func renewed(was *metav1.MicroTime, lease *coordinationv1.Lease) bool {
	if lease == nil || lease.Spec.RenewTime == nil || was.Equal(lease.Spec.RenewTime) {
		return false
	}
	*was = *lease.Spec.RenewTime
	return true
}

func agentGraceOf(lease *coordinationv1.Lease) time.Duration {
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

// disrupt computes the state and the rate of each zone.
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
			h.waiting, h.allowed = time.Time{}, false
		}
	} else if was {
		m.Restart(now)
	}
}

// Restart restarts all grace periods.
func (m *Monitor) Restart(now time.Time) {
	for _, h := range m.nodes {
		h.probe, h.agentProbe = now, now
	}
}

// allowTaints selects the nodes that get NoExecute taints, by the rates of their zones,
// those that wait longest first.
func (m *Monitor) allowTaints(now time.Time, findings []*finding) {
	var queue []*finding
	for _, f := range findings {
		if m.noExecute(f) == "" || f.allowed {
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
	m.waiting = false
	for _, f := range queue {
		f.allowed = f.zone.take(now)
		m.waiting = m.waiting || !f.allowed && f.zone.rate > 0
	}
}

// Waiting reports whether a node waits for a NoExecute taint that the rate of its zone
// will allow.
func (m *Monitor) Waiting() bool { return m.waiting }

// noExecute is the key of the NoExecute taint of a node; empty: none. A node that
// has one of the two may change it at once.
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
		f.waiting, f.allowed = time.Time{}, false
		return ""
	}
	f.allowed = f.allowed || evicted(f.seen)
	return key
}

// evicted reports whether a node has one of the two NoExecute taints.
func evicted(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Effect == v1.TaintEffectNoExecute && isOurs(&t) })
}

func (m *Monitor) update(now time.Time, f *finding) (u Update, any bool) {
	key := m.noExecute(f)
	if !f.allowed {
		key = ""
	}
	u = Update{
		Node: f.seen, Conditions: f.changed, KubeletSilent: f.silent.kubelet, AgentSilent: f.silent.agent, Evicted: key != "" && !evicted(f.seen),
		Lost: readiness(f.seen) == v1.ConditionTrue && readiness(f.node) != v1.ConditionTrue,
	}
	u.Taints, u.Retaint = retaint(f.node, key, now)
	return u, u.Retaint || len(u.Conditions) > 0
}
