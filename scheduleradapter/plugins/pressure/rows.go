package pressure

import (
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// SignFilter adds the kinds of pressure that reject the pod. It is not ok while evictions
// of the pod's owner count.
func (p *Plugin) SignFilter(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	p.update(c.Now)
	for k := range p.applies {
		if p.applies[k] = applies(c.Pod, kind(k)); p.applies[k] {
			s.Add(int64(k))
		}
	}
	return 0, !p.hasEvicted(c.Pod)
}

func (p *Plugin) hasEvicted(pod *nodetable.Pod) bool {
	return len(p.evicted) > 0 && len(p.evicted[nodetable.OwnerOf(pod.Object)]) > 0
}

// FitsRow is false for a node under a pressure that applies to the pod.
func (p *Plugin) FitsRow(_ *framework.Cycle, row nodetable.Row) bool {
	for k, applies := range p.applies {
		if applies && p.short[k].Has(row) {
			return false
		}
	}
	return true
}

// SignScore is not ok while evictions of the pod's owner count.
func (p *Plugin) SignScore(c *framework.Cycle, _ *framework.Signature) (scores, ok bool) {
	p.update(c.Now)
	return true, !p.hasEvicted(c.Pod)
}

// ScoreSpan has the scores of nodes for all pods.
func (p *Plugin) ScoreSpan(_ *framework.Cycle, from nodetable.Row, scores []int64) {
	copy(scores, p.nodeScores[from:])
}
