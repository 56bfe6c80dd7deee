package watch

import (
	"time"

	"github.com/evictd/evictd/cgroup"
)

// podCount is the number of kills in a pod.
type podCount struct {
	reported int64 // the counter less the kills not reported
	pending  int64 // not in the log at the last reading
}

// checkCounters reports the kills that the counters have and the log does not. With a
// log, a kill is reported at the second reading: the kernel counts before it logs. It
// returns whether a kill is pending. A pod is not read while the machine's own counter
// does not change, which the kernel increases just before the pod's.
func (w *Watcher) checkCounters(log bool) (pending bool) {
	kills := cgroup.OOMKills()
	same := kills.IsKnown() && kills == w.kills
	unchanged := same && w.same
	w.kills, w.same = kills, same
	counted := make(map[string]*podCount, len(w.counted))
	for _, p := range w.cfg.Pods() {
		c := w.counted[p.Cgroup]
		if unchanged && c != nil && c.pending == 0 {
			counted[p.Cgroup] = c
			continue
		}
		kills, known := w.killsIn(p.Cgroup)
		switch {
		case !known && c == nil || !contains(w.cfg.Root, p.Cgroup):
			continue
		case !known: // the group does not exist now
		case c == nil:
			c = &podCount{reported: kills}
		default:
			w.reportMissing(p, c, kills, log)
			pending = pending || c.pending > 0
		}
		counted[p.Cgroup] = c
	}
	w.counted = counted
	return pending
}

func (w *Watcher) reportMissing(p Pod, c *podCount, kills int64, log bool) {
	c.reported = min(c.reported, kills) // on v1 the count of a removed group below is lost
	missing := kills - c.reported
	due := missing
	if log {
		due = min(missing, c.pending)
	}
	c.pending = missing - due
	if due > 0 {
		c.reported += due
		w.report(Kill{At: time.Now(), Pod: p.UID, Cgroup: p.Cgroup, Limit: OfUnknown, Processes: due})
	}
}

func (w *Watcher) killsIn(path string) (n int64, known bool) {
	kills, err := w.cfg.Cgroups.OOMKills(path)
	n, known = kills.Get()
	return n, known && err == nil
}
