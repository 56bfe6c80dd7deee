// Package images is the plugin ImageLocality: pods go rather where their images
// are, the more so the larger the images and the more nodes have them.
package images

import (
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "ImageLocality"

// Registration of the plugin.
var Registration = framework.Register[*Plugin](Name, New)

// Bytes of images below which a node scores 0; and, for each image of a pod, from
// which on it scores 100.
const (
	least = 23 << 20
	most  = 1000 << 20
)

// Plugin is ImageLocality.
type Plugin struct {
	sums []int64 // by row, in bytes
}

// New makes the plugin; it takes no arguments.
func New(any, framework.Env) (framework.Plugin, error) { return &Plugin{}, nil }

// Name of the plugin.
func (*Plugin) Name() string { return Name }

// Score rates the bytes of the pod's images that a node has, each image by the
// share of nodes that have it: a node that alone has an image shall not get all
// the pods that use it.
func (p *Plugin) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	clear(scores)
	if !p.sum(c) {
		return framework.Status{}
	}
	top := int64(most * len(c.Pod.Images))
	sum, score := int64(0), int64(0)
	for i, row := range rows {
		if p.sums[row] != sum { // few sums differ, and dividing is slow
			sum = p.sums[row]
			score = framework.MaxScore * (max(least, min(sum, top)) - least) / (top - least)
		}
		scores[i] = score
	}
	return framework.Status{}
}

// sum adds up the images by row; false where no node has any.
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
