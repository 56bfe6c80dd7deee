package outoftree

import (
	"fmt"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// view is the cluster inside a try of the table. The first view of a profile is the
// cycle's; the others are of open tries, the snapshot has the moves before the cycle.
type view struct {
	serial uint64 // of the try
	// replayed is the number of applied moves.
	replayed int
	state    fwk.CycleState
	nodes    map[nodetable.Row]fwk.NodeInfo // nodes that differ from the view below
}

// sight updates the views to the tries of the table. Only the owner's goroutine, or
// one for which it waits, may call it.
func (p *profile) sight(c *framework.Cycle) framework.Status {
	for depth := range c.Table.Tries() {
		serial, moves := c.Table.Tried(depth)
		if depth+1 < len(p.views) && p.views[depth+1].serial != serial {
			p.views = p.views[:depth+1]
		}
		if depth+1 == len(p.views) {
			p.views = append(p.views, view{serial: serial, state: p.views[depth].state.Clone()})
		}
		for v := &p.views[depth+1]; v.replayed < len(moves); v.replayed++ {
			if s := p.replay(c, depth+1, moves[v.replayed]); !s.IsSuccess() {
				return framework.AsStatus(s.AsError())
			}
		}
	}
	p.views = p.views[:c.Table.Tries()+1]
	return framework.Status{}
}

// state is the CycleState of the topmost view.
func (p *profile) state() fwk.CycleState { return p.views[len(p.views)-1].state }

// node is a row in the topmost view.
func (p *profile) node(row nodetable.Row) fwk.NodeInfo {
	for i := len(p.views) - 1; i >= 0; i-- {
		if node, differs := p.views[i].nodes[row]; differs {
			return node
		}
	}
	return p.host.follower.latest.infos[row]
}

// replay applies a move of the table to the topmost view, and calls the plugins'
// extensions.
func (p *profile) replay(c *framework.Cycle, depth int, m nodetable.Move) *fwk.Status {
	v := &p.views[depth]
	node, own := v.nodes[m.Row]
	if !own {
		node = p.node(m.Row).Snapshot()
		if v.nodes == nil {
			v.nodes = map[nodetable.Row]fwk.NodeInfo{}
		}
		v.nodes[m.Row] = node
	}
	info := newPodInfo(m.Pod)
	if m.Placed {
		node.AddPodInfo(info)
	} else if err := node.RemovePod(klog.FromContext(p.host.ctx), m.Pod.Object); err != nil {
		return fwk.AsStatus(err)
	}
	return p.extend(v.state, c.Pod, info, node, m.Placed)
}

// extend calls PreFilterExtensions for a pod that is added or removed.
func (p *profile) extend(state fwk.CycleState, pod *nodetable.Pod, info fwk.PodInfo, node fwk.NodeInfo, added bool) *fwk.Status {
	for _, g := range p.adapters {
		plugin, ok := g.plugin.(fwk.PreFilterPlugin)
		if !ok || !g.ran || state.GetSkipFilterPlugins().Has(g.name) {
			continue
		}
		if s := g.extend(plugin, state, pod, info, node, added); !s.IsSuccess() {
			name := "RemovePod"
			if added {
				name = "AddPod"
			}
			return fwk.AsStatus(fmt.Errorf("running %s on PreFilter plugin %q: %w", name, g.name, s.AsError()))
		}
	}
	return nil
}
