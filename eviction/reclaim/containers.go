package reclaim

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/stats"
)

// unit is what MaxPerPodContainer limits: a container name in a pod.
type unit struct {
	pod  types.UID
	name string
}

// deadContainer is a dead container that may be removed, and why.
type deadContainer struct {
	*Container
	why Reason
}

// containers chooses dead containers. Those of deleted pods are first; among equals the
// earliest exit decides.
func (c *chooser) containers() {
	units := c.dead()
	var removals []deadContainer
	for u, dead := range units {
		if why, released := c.released(u.pod); released {
			for _, d := range dead {
				removals = append(removals, deadContainer{d, why})
			}
			delete(units, u)
		}
	}
	removals = append(removals, c.beyondPodLimit(units)...)
	removals = append(removals, c.beyondNodeLimit(units)...)
	slices.SortFunc(removals, func(a, b deadContainer) int {
		return cmp.Or(cmp.Compare(a.why, b.why), older(a.dead(), b.dead(), a.ID, b.ID))
	})
	for _, d := range removals {
		c.remove(Removal{
			Kind: KindContainer, ID: d.ID, Pod: d.Pod, Name: d.Name, Why: d.why,
			Bytes: c.relief(d.Layer, d.Logs), Inodes: c.relief(d.LayerInodes, d.LogInodes), Log: d.Log,
		})
	}
	for _, r := range c.plan.Removals {
		c.removed[r.ID] = true
	}
	for _, dead := range units {
		for _, d := range dead {
			c.keep(Kept{Kind: KindContainer, ID: d.ID, Pod: d.Pod, Name: d.Name, Why: WithinLimit})
		}
	}
	slices.SortFunc(c.plan.Kept, func(a, b Kept) int { return cmp.Or(cmp.Compare(a.Why, b.Why), cmp.Compare(a.ID, b.ID)) })
}

// relief is what a container frees on the disk, of its layer and its logs.
func (c *chooser) relief(layer, logs stats.Amount) stats.Amount {
	var parts []stats.Amount
	if c.goal.Need.Layers {
		parts = append(parts, layer)
	}
	if c.goal.Need.Logs {
		parts = append(parts, logs)
	}
	return stats.Sum(parts...)
}

// dead lists the containers that are dead for long enough, the newest of each unit
// first.
func (c *chooser) dead() map[unit][]*Container {
	units := map[unit][]*Container{}
	for i := range c.inventory.Containers {
		d := &c.inventory.Containers[i]
		kept := Kept{Kind: KindContainer, ID: d.ID, Pod: d.Pod, Name: d.Name, Why: Running}
		switch {
		case d.Running:
			c.keep(kept)
		case c.now.Sub(d.dead()) < c.policy.ContainerMinAge:
			kept.Why = TooYoung
			c.keep(kept)
		default:
			units[unit{d.Pod, d.Name}] = append(units[unit{d.Pod, d.Name}], d)
		}
	}
	for _, dead := range units {
		slices.SortFunc(dead, newest)
	}
	return units
}

func newest(a, b *Container) int {
	return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(b.Attempt, a.Attempt), cmp.Compare(a.ID, b.ID))
}

// beyondPodLimit takes all but the newest from each unit.
func (c *chooser) beyondPodLimit(units map[unit][]*Container) []deadContainer {
	if c.policy.MaxPerPodContainer < 0 {
		return nil
	}
	return shorten(units, c.policy.MaxPerPodContainer, BeyondPodLimit)
}

// beyondNodeLimit takes what exceeds its share from each unit, and then the oldest of
// all, up to the last of a unit.
func (c *chooser) beyondNodeLimit(units map[unit][]*Container) []deadContainer {
	most := c.policy.MaxContainers
	if most < 0 || count(units) <= most {
		return nil
	}
	removals := shorten(units, max(1, most/len(units)), BeyondNodeLimit)
	var left []*Container
	for _, dead := range units {
		left = append(left, dead...)
	}
	slices.SortFunc(left, newest)
	for _, d := range left[min(most, len(left)):] {
		u := unit{d.Pod, d.Name}
		units[u] = slices.DeleteFunc(units[u], func(other *Container) bool { return other == d })
		removals = append(removals, deadContainer{d, BeyondNodeLimit})
	}
	return removals
}

func count(units map[unit][]*Container) (n int) {
	for _, dead := range units {
		n += len(dead)
	}
	return n
}

// shorten takes from each unit what exceeds a limit.
func shorten(units map[unit][]*Container, limit int, why Reason) (removals []deadContainer) {
	for u, dead := range units {
		for _, d := range dead[min(limit, len(dead)):] {
			removals = append(removals, deadContainer{d, why})
		}
		units[u] = dead[:min(limit, len(dead))]
	}
	return removals
}

// sandboxes chooses sandboxes that are not ready and have no container after the
// removals: all of a deleted pod, all but the newest of other pods.
func (c *chooser) sandboxes() {
	holding, last := map[string]bool{}, map[types.UID]Sandbox{}
	for i := range c.inventory.Containers {
		if d := &c.inventory.Containers[i]; !c.removed[d.ID] {
			holding[d.Sandbox] = true
		}
	}
	for _, s := range c.inventory.Sandboxes {
		if l, known := last[s.Pod]; !known || older(l.Created, s.Created, l.ID, s.ID) < 0 {
			last[s.Pod] = s
		}
	}
	oldest := func(a, b Sandbox) int { return older(a.Created, b.Created, a.ID, b.ID) }
	for _, s := range sorted(c.inventory.Sandboxes, oldest) {
		why, released := c.released(s.Pod)
		kept := Kept{Kind: KindSandbox, ID: s.ID, Pod: s.Pod}
		switch {
		case s.Ready:
			kept.Why = Running
			c.keep(kept)
		case holding[s.ID]:
			kept.Why = InUse
			c.keep(kept)
		case released:
			c.remove(Removal{Kind: KindSandbox, ID: s.ID, Pod: s.Pod, Why: why})
		case last[s.Pod].ID == s.ID:
			kept.Why = WithinLimit
			c.keep(kept)
		default:
			c.remove(Removal{Kind: KindSandbox, ID: s.ID, Pod: s.Pod, Why: NoContainers})
		}
	}
}
