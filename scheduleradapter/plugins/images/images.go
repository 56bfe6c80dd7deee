// Package images is the plugin ImageLocality: it scores nodes by the size of the
// pod's images that they have, and the share of nodes that have each image.
package images

import (
	"slices"

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
	sums []int64               // by row in bytes
	uses []*nodetable.ImageUse // of the pod of SignClasses by image; nil: no node has it
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
	sum, score := int64(0), scoreOf(0, len(c.Pod.Images))
	for i, row := range rows {
		if p.sums[row] != sum { // adjacent nodes often have the same sum
			sum = p.sums[row]
			score = scoreOf(sum, len(c.Pod.Images))
		}
		scores[i] = score
	}
	return framework.Status{}
}

// mostImages bounds the images in a class, which has a bit for each.
const mostImages = 31

// SignClasses adds the images. All scores are equal if no node has any.
func (p *Plugin) SignClasses(c *framework.Cycle, s *framework.Signature) (width int, ok bool) {
	p.uses = p.uses[:0]
	for _, image := range c.Pod.Images {
		use := c.Table.Image(image)
		if p.uses = append(p.uses, use); use != nil {
			width = 1
		}
	}
	if width == 1 {
		s.AddSymbols(c.Pod.Images...)
	}
	return width, len(p.uses) <= mostImages
}

// ScoreClass has the bits of the images that a node has.
func (p *Plugin) ScoreClass(_ *framework.Cycle, row nodetable.Row, values []int32) {
	for i, use := range p.uses {
		if use == nil {
			continue
		}
		if _, has := slices.BinarySearch(use.Rows, row); has {
			values[0] |= 1 << i
		}
	}
}

// ScoreClasses are as those of Score.
func (p *Plugin) ScoreClasses(c *framework.Cycle, classes []framework.Class, scores []int64) {
	nodes := float64(c.Table.Len())
	for i := range classes {
		sum := int64(0)
		for image, use := range p.uses {
			if use != nil && classes[i].Values[0]&(1<<image) != 0 {
				sum += share(use, nodes)
			}
		}
		scores[i] = scoreOf(sum, len(p.uses))
	}
}

// scoreOf a sum of image bytes.
func scoreOf(sum int64, images int) int64 {
	top := int64(most * images)
	return framework.MaxScore * (max(least, min(sum, top)) - least) / (top - least)
}

// share is the size of an image, scaled by the share of nodes that have it.
func share(use *nodetable.ImageUse, nodes float64) int64 {
	return int64(float64(use.Size) * (float64(len(use.Rows)) / nodes))
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
		bytes := share(use, nodes)
		for _, row := range use.Rows {
			p.sums[row] += bytes
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
