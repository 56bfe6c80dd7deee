// Package images is the plugin ImageLocality: it scores nodes by the size of the
// pod's images that they have, and the share of nodes that have each image.
package images

import (
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "ImageLocality"

// Sum of image bytes with the score 0, and for each container with the score 100.
// Source: kube-scheduler's minThreshold and maxContainerThreshold.
const (
	least = 23 << 20
	most  = 1000 << 20
)

// Plugin is ImageLocality.
type Plugin struct {
	sums []int64 // by row in bytes
}

func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

func (*Plugin) Name() string { return Name }

// Score rates the bytes of the pod's images on a node, each image scaled by the
// share of nodes that have it, so that a single node with an image does not get all
// its pods.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	if !p.sum(c) {
		return framework.Status{}
	}
	top := int64(most * len(c.Pod.Images))
	sum, score := int64(0), int64(0)
	for i, row := range rows {
		if p.sums[row] != sum { // adjacent nodes often have the same sum
			sum = p.sums[row]
			score = framework.MaxScore * (max(least, min(sum, top)) - least) / (top - least)
		}
		scores[i] = score
	}
	return framework.Status{}
}

// sum adds up the image bytes by row; false: no node has an image.
func (p *Plugin) sum(c *framework.Cycle) (found bool) {
	nodes := float64(c.Table.Len())
	for _, image := range c.Pod.Images {
		use := c.Table.Image(image)
		if use == nil {
			continue
		}
		if !found {
			found = true
			p.clear(c.Table.Rows())
		}
		share := int64(float64(use.Size) * (float64(len(use.Rows)) / nodes))
		for _, row := range use.Rows {
			p.sums[row] += share
		}
	}
	return found
}

func (p *Plugin) clear(rows int) {
	if len(p.sums) < rows {
		p.sums = make([]int64, rows)
	}
	clear(p.sums)
}
