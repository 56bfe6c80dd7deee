package pressure

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// update computes the state of all nodes, if the table changed or refresh has
// passed.
func (p *Plugin) update(now time.Time) {
	p.now = now
	if p.version == p.table.Versions.Pressure && !now.Before(p.at) && now.Sub(p.at) < refresh && len(p.nodeScores) == p.table.Rows() {
		return
	}
	p.version, p.at = p.table.Versions.Pressure, now
	for k := range p.short {
		p.short[k], p.shortBefore[k] = p.shortBefore[k].Emptied(p.table.Rows()), p.short[k]
	}
	p.nodeScores, p.scoresBefore = slices.Grow(p.scoresBefore[:0], p.table.Rows())[:p.table.Rows()], p.nodeScores
	clear(p.evicted)
	for row := range p.table.Alive().All() {
		if p.look(row); p.changed(row) {
			p.table.Touch(row)
		}
	}
	for name, since := range p.placed {
		if now.Sub(since.recovered) >= p.args.Ramp.Duration {
			delete(p.placed, name)
		}
	}
}

// changed reports whether a row has another score or pressure than before.
func (p *Plugin) changed(row nodetable.Row) bool {
	if int(row) >= len(p.scoresBefore) || p.scoresBefore[row] != p.nodeScores[row] {
		return true
	}
	for k := range p.short {
		if p.short[k].Has(row) != p.shortBefore[k].Has(row) {
			return true
		}
	}
	return false
}

func (p *Plugin) look(row nodetable.Row) {
	node := p.table.Node(row)
	headroom := p.headroom(node)
	p.readConditions(row, node, headroom != nil)
	if *p.args.Headroom && headroom != nil {
		for _, s := range headroom.Signals {
			if k, known := kindOf[s.Signal]; known && s.Level == nodetable.LevelHard {
				p.short[k].Set(row)
			}
		}
	}
	p.nodeScores[row] = p.nodeScore(node, headroom)
	if p.args.EvictionHalfLife.Duration > 0 {
		p.keepEvictions(row, headroom)
	}
}

// headroom is the valid headroom of a node; nil: there is none.
func (p *Plugin) headroom(node *nodetable.Node) *nodetable.Headroom {
	if h := p.table.Headroom(node.Name); h != nil && p.now.Before(h.Until) {
		return h
	}
	return nil
}

// nodeScore is the score of a node for all pods.
func (p *Plugin) nodeScore(node *nodetable.Node, headroom *nodetable.Headroom) int64 {
	score := int64(framework.MaxScore)
	if *p.args.Headroom && headroom != nil {
		for _, s := range headroom.Signals {
			score = min(score, levelScores[s.Level])
		}
	}
	if recovered := p.recovered(node); !recovered.IsZero() {
		risen := framework.MaxScore * int64(p.now.Sub(recovered)) / int64(p.args.Ramp.Duration)
		score = min(score, max(0, risen-arrivalCost*p.placed[node.Name].pods))
	}
	return score
}

// readConditions reads the enabled conditions that are true. Evictd's own
// conditions are ignored without a valid Lease.
func (p *Plugin) readConditions(row nodetable.Row, node *nodetable.Node, fresh bool) {
	for _, c := range node.Conditions {
		own := strings.HasPrefix(string(c.Type), "evictd.io/")
		if k, of := pressureOf(c.Type); of && p.conditions[k] && c.Status == v1.ConditionTrue && (fresh || !own) {
			p.short[k].Set(row)
		}
	}
}

// keepEvictions keeps the evictions of a node by owner. An eviction lasts while a signal
// of its kind is above the level ok, or the condition is true; for an unknown
// signal, while any kind is.
func (p *Plugin) keepEvictions(row nodetable.Row, headroom *nodetable.Headroom) {
	evictions := p.table.Evictions(p.table.Node(row).Name)
	var uneasy [kinds]bool
	for k := range uneasy {
		uneasy[k] = p.short[k].Has(row)
	}
	if headroom != nil {
		for _, s := range headroom.Signals {
			if k, known := kindOf[s.Signal]; known && s.Level > nodetable.LevelOK {
				uneasy[k] = true
			}
		}
		evictions = slices.Concat(evictions, headroom.Evicted)
	}
	for _, e := range evictions {
		k, known := kindOf[e.Signal]
		lasts := known && uneasy[k] || !known && uneasy != [kinds]bool{}
		p.evicted[e.Owner] = append(p.evicted[e.Owner], eviction{row, e.At, lasts})
	}
}
