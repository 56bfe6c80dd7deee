package framework

import (
	"fmt"
	"slices"
	"strings"
)

// NoNodes is the message for a cluster without nodes.
const NoNodes = "no nodes available to schedule pods"

// Histogram counts nodes by reason.
type Histogram map[string]int

// Message is kube-scheduler's FitError text. The counts are sorted as strings.
func (h Histogram) Message(nodes int) string {
	lines := make([]string, 0, len(h))
	for reason, n := range h {
		lines = append(lines, fmt.Sprintf("%d %s", n, reason))
	}
	slices.Sort(lines)
	return unavailable(nodes, strings.Join(lines, ", "))
}

func unavailable(nodes int, why string) string {
	if why == "" {
		return fmt.Sprintf("0/%d nodes are available:", nodes)
	}
	return fmt.Sprintf("0/%d nodes are available: %s.", nodes, why)
}

// Message is kube-scheduler's FitError text of a cycle, with the reason of
// PostFilter.
func (c *Cycle) Message(postFilter Status) string {
	var text string
	if c.preFilterStatus.Code.Rejected() {
		text = unavailable(c.Table.Len(), c.preFilterStatus.Message())
	} else {
		text = c.histogram().Message(c.Table.Len())
	}
	if reason := postFilter.Message(); reason != "" {
		text += " " + reason
	}
	return text
}

func (c *Cycle) histogram() Histogram {
	h := Histogram{}
	for _, k := range c.kinds() {
		_, reasons := c.Explain(k.Rejection)
		for _, reason := range reasons {
			h[reason] += k.nodes
		}
	}
	for row := range c.further {
		for _, reason := range c.Further(row) {
			h[reason]++
		}
	}
	if absent := c.Table.Len() - c.Evaluated.Count(); c.isNarrowed && absent > 0 {
		h[fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", c.narrowing)] += absent
	}
	return h
}
