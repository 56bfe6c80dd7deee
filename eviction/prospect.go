package eviction

import (
	"fmt"
	"slices"
)

// Prospect says whether a step may be taken on a pod, and when, or why not.
type Prospect struct {
	Step    Step
	May     bool
	Because string
}

// Prospects are those of a pod of the input, with its usage: one for each step that is configured.
func (st *State) Prospects(cfg *Config, in *Input, c *Candidate) (all []Prospect) {
	for step := range numSteps {
		if may, because := steps[step].prospect(st, cfg, in, c); because != "" {
			all = append(all, Prospect{step, may, because})
		}
	}
	return all
}

func (st *State) warnProspect(cfg *Config, _ *Input, c *Candidate) (may bool, because string) {
	switch {
	case len(cfg.Warnings.Namespaces) == 0:
		return false, ""
	case !c.Pod.Notify.Asks():
		return false, "it asks for no notice"
	case !cfg.Warnings.of(c.Pod):
		return false, "notices are not configured for its namespace"
	}
	return true, "where memory is short, or a container of it reaches its limit within " + cfg.Warnings.Lead.String()
}

// reclaimProspect goes by what the round has measured, and before one by the working set alone.
func (st *State) reclaimProspect(cfg *Config, in *Input, c *Candidate) (may bool, because string) {
	if cfg.MemoryReclaims.Budget == 0 {
		return false, ""
	}
	m, cache := PodMemory{UID: c.Pod.UID, PageCache: leastReclaim}, ""
	if c.Usage != nil {
		m.WorkingSet = c.Usage.Memory.Or(0)
	}
	for i := range st.Round.Pods {
		if r := &st.Round.Pods[i]; r.UID == m.UID {
			m.PageCache, cache = r.PageCache, ", page cache "+rounded(r.PageCache)
		}
	}
	if _, why := st.reclaimsFrom(in, &m); why != "" {
		return false, why
	}
	return true, fmt.Sprintf("where a soft threshold of memory is crossed: it is %s above its request%s", rounded(m.WorkingSet-c.Pod.MemoryRequest), cache)
}

func (st *State) throttleProspect(cfg *Config, _ *Input, c *Candidate) (may bool, because string) {
	g := Growth{UID: c.Pod.UID, PerSecond: c.Growth}
	if c.Usage != nil {
		g.Memory = c.Usage.Memory.Or(0)
	}
	if cfg.ThrottlePeriod == 0 {
		return false, ""
	}
	if why := st.keepsFromThrottle(c.Pod, &g); why != "" {
		return false, why
	}
	return true, fmt.Sprintf("where it causes half of a fall that reaches a hard threshold of memory within %v: it grows by %s a second", cfg.ThrottlePeriod, rounded(max(0, g.PerSecond)))
}

func (st *State) restartProspect(cfg *Config, _ *Input, c *Candidate) (may bool, because string) {
	restartable := func(c Container) bool { return c.Restart != NotRestarted }
	switch {
	case cfg.Restarts.BackOff == 0:
		return false, ""
	case c.Pod.Protection != "":
		return false, string(c.Pod.Protection)
	case c.Pod.Estimated:
		return false, "its request is not known"
	case len(c.Pod.Containers) < 2:
		return false, "it has no other container"
	case !slices.ContainsFunc(c.Pod.Containers, restartable):
		return false, "a kubelet starts none of its containers again, or they write to a volume in memory"
	case st.restarted(c.Pod.UID) != nil:
		return false, "one of its containers was restarted less than " + cfg.Restarts.BackOff.String() + " ago"
	}
	return true, "where it is the victim for memory, and one of its containers alone uses what the pod uses above its request"
}
