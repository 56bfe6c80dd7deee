package outoftree

import (
	"fmt"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// view is how plugins see the cluster inside one try of the table: the first of a
// profile's views is the cycle's, the others are for the open tries.
type view struct {
	serial uint64 // of the try
	// replayed is how many of its moves are in here.
	replayed int
	state    fwk.CycleState
	nodes    map[nodetable.Row]fwk.NodeInfo // those that differ from the view below
}

// sight brings the views up to what the table tries now. Only the owner's
// goroutine, or one it waits for, may call it.
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

// state is what plugins keep for the cycle, in the topmost view.
func (p *profile) state() fwk.CycleState { return p.views[len(p.views)-1].state }

// node is a row as the topmost view shows it.
func (p *profile) node(row nodetable.Row) fwk.NodeInfo {
	for i := len(p.views) - 1; i >= 0; i-- {
		if node, differs := p.views[i].nodes[row]; differs {
			return node
		}
	}
	return p.host.follower.latest.infos[row]
}

// replay does in the topmost view, which is that of the given depth, what was
// done in the table, and tells the plugins.
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

// extend tells the plugins with PreFilterExtensions of a pod that is added to a
// node, or removed.
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
