package simulate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/lifecycle"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// monitorNodes runs the node lifecycle if a node is given as not ready. Nodes without
// the condition Ready count as ready, and the heartbeats of all nodes continue.
func (s *Simulation) monitorNodes() {
	if !slices.ContainsFunc(s.objects.Nodes, func(node *v1.Node) bool { return readiness(node) != v1.ConditionTrue }) {
		return
	}
	s.monitor = lifecycle.NewMonitor()
	s.passNodes()
}

func readiness(node *v1.Node) v1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return v1.ConditionTrue
}

// passNodes adds the NoExecute taints that are due, and comes back while nodes wait for
// theirs.
func (s *Simulation) passNodes() {
	states := make([]lifecycle.NodeState, len(s.objects.Nodes))
	for i, node := range s.objects.Nodes {
		copied := *node
		copied.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: readiness(node)}}
		states[i].Node = &copied
	}
	s.monitor.Restart(s.now)
	for _, update := range s.monitor.Pass(s.now, states) {
		if !update.Evicted {
			continue
		}
		i := slices.IndexFunc(s.objects.Nodes, func(node *v1.Node) bool { return node.Name == update.Node.Name })
		tainted := *s.objects.Nodes[i]
		for _, taint := range update.Taints {
			if taint.Effect == v1.TaintEffectNoExecute && !slices.ContainsFunc(tainted.Spec.Taints, func(t v1.Taint) bool { return t.MatchTaint(&taint) }) {
				tainted.Spec.Taints = append(slices.Clone(tainted.Spec.Taints), taint)
			}
		}
		s.objects.Nodes[i] = &tainted
		s.setNode(nodetable.NewNode(&tainted))
	}
	if s.monitor.Waiting() {
		s.timers.add(s.now.Add(lifecycle.MonitorPeriod), s.passNodes)
	}
}

// setNode updates a node and sets the timers of its pods.
func (s *Simulation) setNode(node *nodetable.Node) {
	row := s.Table.Row(node.Name)
	old := s.Table.Node(row)
	for changed := framework.NodeEvents(s.Table.SetNode(node)); changed != 0; changed &= changed - 1 {
		s.Queue.MoveAllToActiveOrBackoff(s.now, &framework.Occurrence{
			Event: framework.Event{Resource: framework.NodeResource, Action: changed & -changed}, OldNode: old, Node: node,
		})
	}
	for _, pod := range s.Table.PodsOn(row) {
		if !pod.Terminating {
			s.watch(pod, node, time.Time{})
		}
	}
}
