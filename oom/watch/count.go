package watch

import (
	"time"

	"github.com/evictd/evictd/cgroup"
)

// count is what is known of the kills in a pod.
type count struct {
	told int64 // as the counter would be if it counted what was told
	late int64 // the log had not told at the last look
}

// count tells what the counters have and the log does not. Where there is a log,
// that has until the next look: the kernel counts first. It says whether something
// waits for that. A pod that was counted is left alone while the machine's own counter
// stands still, which rises just before the pod's.
func (w *Watcher) count(log bool) (waits bool) {
	kills := cgroup.OOMKills()
	same := kills.IsKnown() && kills == w.kills
	still := same && w.same
	w.kills, w.same = kills, same
	counted := make(map[string]*count, len(w.counted))
	for _, p := range w.cfg.Pods() {
		c := w.counted[p.Cgroup]
		if still && c != nil && c.late == 0 {
			counted[p.Cgroup] = c
			continue
		}
		kills, known := w.killsIn(p.Cgroup)
		switch {
		case !known && c == nil || !holds(w.cfg.Root, p.Cgroup):
			continue
		case !known: // the group is not there at the moment
		case c == nil:
			c = &count{told: kills}
		default:
			w.surplus(p, c, kills, log)
			waits = waits || c.late > 0
		}
		counted[p.Cgroup] = c
	}
	w.counted = counted
	return waits
}

func (w *Watcher) surplus(p Pod, c *count, kills int64, log bool) {
	c.told = min(c.told, kills) // on v1 a group below takes its count away with it
	missing := kills - c.told
	due := missing
	if log {
		due = min(missing, c.late)
	}
	c.late = missing - due
	if due > 0 {
		c.told += due
		w.tell(Kill{At: time.Now(), Pod: p.UID, Cgroup: p.Cgroup, Limit: OfUnknown, Processes: due})
	}
}

func (w *Watcher) killsIn(path string) (n int64, known bool) {
	group, err := w.cfg.Cgroups.Open(path)
	if err != nil {
		return 0, false
	}
	defer group.Close()
	kills, err := group.OOMKills()
	n, known = kills.Get()
	return n, known && err == nil
}
