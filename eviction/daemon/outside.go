package daemon

import (
	"path"
	"strings"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// mostGroups bounds the cgroups that are read to find the largest users outside of the pods.
const mostGroups = 300

// outsideUsers are the cgroups outside of the pods' that use memory or process ids, and what
// the node uses beside all cgroups. Of a disk nothing is known.
func (d *Daemon) outsideUsers(c eviction.Condition) (users []nodestatus.User) {
	if d.node.cgroups == nil || c == eviction.DiskPressure {
		return nil
	}
	pods := d.tracker.podsGroup.Path()
	rest, known := d.uses(d.node.root, c).Get()
	left := mostGroups
	var walk func(group string)
	walk = func(group string) {
		children, _ := d.node.cgroups.Children(group) // those that end meanwhile use nothing
		for _, name := range children {
			child := path.Join(group, name)
			if left--; left < 0 {
				return
			}
			if child == pods {
				rest -= d.uses(child, c).Or(0)
				continue
			}
			if strings.HasSuffix(name, ".slice") || strings.HasPrefix(pods, child+"/") {
				walk(child)
				continue
			}
			used := d.uses(child, c).Or(0)
			rest -= used
			users = append(users, nodestatus.User{Name: strings.TrimPrefix(strings.TrimPrefix(child, d.node.root), "/"), Used: used})
		}
	}
	walk(d.node.root)
	if known && rest > 0 {
		users = append(users, nodestatus.User{Name: "the kernel, and processes in no cgroup", Used: rest})
	}
	return users
}

// uses is what a cgroup uses: the working set of its memory in bytes, or tasks.
func (d *Daemon) uses(group string, c eviction.Condition) (used stats.Amount) {
	opened, err := d.node.cgroups.Open(group)
	if err != nil {
		return used
	}
	defer opened.Close()
	if c == eviction.PIDPressure {
		used, _ = opened.Threads()
		return used
	}
	var memory stats.Memory
	_ = opened.Memory(&memory) // unknown then
	return memory.WorkingSet()
}
