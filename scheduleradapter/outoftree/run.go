package outoftree

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Errors of plugins that run other plugins through the Handle. They may do so for
// the pod of the cycle only.
var (
	errNoCycle    = errors.New("plugins can run other plugins only inside a scheduling cycle")
	errOtherPod   = errors.New("plugins can run other plugins only for the unchanged pod of the scheduling cycle")
	errScoring    = errors.New("a score plugin cannot score nodes")
	errOtherState = errors.New("the cycle state was not made by this scheduler")
)

// try calls a function with the table in the state of the given nodes and of the
// recorded moves, and restores the table.
func (p *profile) try(state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo, f func(c *framework.Cycle, rows []nodetable.Row) *fwk.Status) *fwk.Status {
	p.host.running.Lock()
	defer p.host.running.Unlock()
	c, err := p.current(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if s := p.sight(c); !s.OK() {
		return answer(s)
	}
	depth := len(p.views)
	shown := view{state: state, nodes: map[nodetable.Row]fwk.NodeInfo{}}
	c.Table.Try()
	defer func() {
		c.Table.Undo()
		p.views = p.views[:depth]
	}()
	if own, ok := state.(*cycleState); ok {
		redo(c.Table, own.moves)
	}
	rows := make([]nodetable.Row, len(nodes))
	for i, node := range nodes {
		if rows[i], err = show(c.Table, node); err != nil {
			return fwk.AsStatus(err)
		}
		shown.nodes[rows[i]] = node
	}
	serial, moves := c.Table.Tried(depth - 1)
	shown.serial, shown.replayed = serial, len(moves)
	p.views = append(p.views, shown)
	return f(c, rows)
}

// current is the running cycle, if it is for the pod.
func (p *profile) current(pod *v1.Pod) (*framework.Cycle, error) {
	c := p.cycle
	if c == nil || !p.host.isInside() || c.Runner().Profile() != p.name {
		return nil, errNoCycle
	}
	if is := c.Pod.Object; pod != is && (pod.UID != is.UID || !reflect.DeepEqual(pod.Labels, is.Labels) || !reflect.DeepEqual(pod.Spec, is.Spec)) {
		return nil, errOtherPod
	}
	return c, nil
}

// redo repeats the moves that the table does not have.
func redo(t *nodetable.Table, moves []nodetable.Move) {
	for _, m := range moves {
		if m.Placed {
			t.Place(m.Pod, m.Row)
		} else {
			t.Displace(m.Pod.UID)
		}
	}
}

// show gives a row of the table the pods of a node.
func show(t *nodetable.Table, node fwk.NodeInfo) (nodetable.Row, error) {
	object := node.Node()
	if object == nil {
		return nodetable.NoRow, errors.New("a node info without a node cannot be tried")
	}
	row := t.Row(nodetable.Intern(object.Name))
	switch {
	case row == nodetable.NoRow:
		return row, fmt.Errorf("node %s is not in the snapshot", object.Name)
	case object != t.Node(row).Object && nodetable.Changes(nodetable.NewNode(object), t.Node(row)) != 0:
		return row, fmt.Errorf("node %s differs from the snapshot's: only its pods can be tried", object.Name)
	}
	wanted := map[types.UID]bool{}
	for _, info := range node.GetPods() {
		wanted[info.GetPod().UID] = true
	}
	for i := len(t.PodsOn(row)) - 1; i >= 0; i-- {
		if pod := t.PodsOn(row)[i]; !wanted[pod.UID] {
			t.Displace(pod.UID)
		}
	}
	for _, info := range node.GetPods() {
		if _, at := t.Find(info.GetPod().UID); at != row {
			t.Place(ownPodInfo(info).digest, row)
		}
	}
	return row, nil
}

func (h *handle) RunFilterPlugins(_ context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	return h.profile.fits(state, pod, node, (*framework.Cycle).FitsAlone)
}

// RunFilterPluginsWithNominatedPods runs the filters with and without the pods
// nominated to the node.
func (h *handle) RunFilterPluginsWithNominatedPods(_ context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	return h.profile.fits(state, pod, node, (*framework.Cycle).Fits)
}

func (p *profile) fits(state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, ask func(*framework.Cycle, nodetable.Row) (bool, framework.Rejection, framework.Status)) *fwk.Status {
	return p.try(state, pod, []fwk.NodeInfo{node}, func(c *framework.Cycle, rows []nodetable.Row) *fwk.Status {
		fits, why, s := ask(c, rows[0])
		switch {
		case !s.OK():
			return answer(s)
		case !fits:
			return refused(c, why)
		}
		return nil
	})
}

func (h *handle) RunPreFilterExtensionAddPod(_ context.Context, state fwk.CycleState, pod *v1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	return h.profile.extension(state, pod, added, node, true)
}

func (h *handle) RunPreFilterExtensionRemovePod(_ context.Context, state fwk.CycleState, pod *v1.Pod, removed fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	return h.profile.extension(state, pod, removed, node, false)
}

// extension calls the extensions of the out-of-tree plugins, and records the move
// for the built-in plugins, which read the table.
func (p *profile) extension(state fwk.CycleState, pod *v1.Pod, info fwk.PodInfo, node fwk.NodeInfo, added bool) *fwk.Status {
	p.host.running.Lock()
	defer p.host.running.Unlock()
	c, err := p.current(pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	own, ok := state.(*cycleState)
	if !ok {
		return fwk.AsStatus(errOtherState)
	}
	row := nodetable.NoRow
	if object := node.Node(); object != nil {
		row = c.Table.Row(nodetable.Intern(object.Name))
	}
	if row == nodetable.NoRow {
		return fwk.AsStatus(errors.New("the node of the pod is not in the snapshot"))
	}
	own.moves = append(own.moves, nodetable.Move{Pod: ownPodInfo(info).digest, Row: row, Placed: added})
	return p.extend(state, c.Pod, info, node, added)
}

func (h *handle) RunPreScorePlugins(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	p := h.profile
	return p.try(state, pod, nodes, func(c *framework.Cycle, rows []nodetable.Row) *fwk.Status {
		own, ok := state.(*cycleState)
		switch {
		case !ok:
			return fwk.AsStatus(errOtherState)
		case p.scoring:
			return fwk.AsStatus(errScoring)
		}
		defer func() { p.scoring = false }()
		feasible := nodetable.Bits(nil).Emptied(c.Table.Rows())
		feasible.SetAll(rows)
		own.scoring = c.ForNodes(feasible)
		own.scoring.State = state
		return answer(c.Runner().PreScore(own.scoring))
	})
}

// RunScorePlugins scores nodes after RunPreScorePlugins with the same state.
func (h *handle) RunScorePlugins(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (scores []fwk.NodePluginScores, s *fwk.Status) {
	p := h.profile
	s = p.try(state, pod, nodes, func(c *framework.Cycle, rows []nodetable.Row) *fwk.Status {
		own, ok := state.(*cycleState)
		switch {
		case !ok:
			return fwk.AsStatus(errOtherState)
		case p.scoring:
			return fwk.AsStatus(errScoring)
		}
		feasible := nodetable.Bits(nil).Emptied(c.Table.Rows())
		feasible.SetAll(rows)
		if own.scoring == nil || !reflect.DeepEqual(own.scoring.Feasible, feasible) {
			return fwk.AsStatus(errors.New("RunPreScorePlugins was not called for these nodes with this state"))
		}
		defer func() { p.scoring = false }()
		if s := c.Runner().ScoreRows(own.scoring); !s.OK() {
			return answer(s)
		}
		scores = tabulate(own.scoring, rows)
		return nil
	})
	return scores, s
}

// tabulate lists the scores of rows in order.
func tabulate(c *framework.Cycle, rows []nodetable.Row) []fwk.NodePluginScores {
	at := make(map[nodetable.Row]int, len(rows))
	for i, row := range c.Rows {
		at[row] = i
	}
	table := make([]fwk.NodePluginScores, len(rows))
	for i, row := range rows {
		table[i] = fwk.NodePluginScores{Name: c.Table.Node(row).Name.Value(), TotalScore: c.Totals[at[row]]}
		for plugin, name := range c.Runner().ScorePlugins() {
			if score, ran := c.ScoreOf(plugin, at[row]); ran {
				table[i].Scores = append(table[i].Scores, fwk.PluginScore{Name: name, Score: score})
			}
		}
	}
	return table
}

func (h *handle) RunReservePluginsReserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	s := fwk.AsStatus(errNoCycle)
	h.profile.reserve(state, pod, node, &s, func(r *framework.Runner, a framework.Assignment) {
		s = answer(r.Reserve(a))
	})
	return s
}

func (h *handle) RunReservePluginsUnreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	var s *fwk.Status
	h.profile.reserve(state, pod, node, &s, (*framework.Runner).Unreserve)
	if !s.IsSuccess() {
		h.host.cfg.Log.Error("Unreserve did not run", "pod", pod.Namespace+"/"+pod.Name, "node", node, "error", s.AsError())
	}
}

func (p *profile) reserve(state fwk.CycleState, pod *v1.Pod, node string, s **fwk.Status, f func(*framework.Runner, framework.Assignment)) {
	p.host.running.Lock()
	defer p.host.running.Unlock()
	c, err := p.current(pod)
	if err != nil {
		*s = fwk.AsStatus(err)
		return
	}
	row := c.Table.Row(nodetable.Intern(node))
	if row == nodetable.NoRow {
		*s = fwk.AsStatus(fmt.Errorf("there is no node %q", node))
		return
	}
	f(c.Runner(), framework.Assignment{Pod: c.Pod, Node: c.Table.Node(row), State: state})
}
