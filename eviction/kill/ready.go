package kill

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of the pidfds of pods that are not being killed.
const (
	maxReady       = 64 // targets
	maxReadyOfEach = 16 // processes
)

// Prepare replaces the targets that Kill can signal without opening anything: pods, and containers of pods. It opens
// pidfds of their processes, and the files that Usage reads. It uses the first 64 of them.
// It blocks while it reads /proc and cgroup files; one goroutine calls it. A process
// that has left its pod since is signalled too.
func (k *Killer) Prepare(victims []Victim) {
	victims = victims[:min(len(victims), maxReady)]
	for _, v := range victims {
		g := k.takeReady(v.Target)
		if !v.Tasks.IsKnown() || v.Tasks != g.tasks {
			g.refresh(maxReadyOfEach)
			g.tasks = v.Tasks
			if v.Usage != nil {
				v.Usage()
			}
		}
		k.storeReady(v.UID, g)
	}
	for _, g := range k.takeOthers(victims) {
		g.closeAll()
	}
}

// Ended says whether a prepared pod has no process: those that were listed have exited, and there are no others. It opens and
// allocates nothing where a listed process runs, or the pod is not prepared: then it is false.
func (k *Killer) Ended(target Target) bool {
	k.mu.Lock()
	g := k.ready[target]
	exited := g != nil && g.exited()
	k.mu.Unlock()
	return exited && hasEnded(target, func(error) {})
}

// takeOthers removes and returns the prepared pidfds of all other targets.
func (k *Killer) takeOthers(victims []Victim) (others []*pidfdSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for target, g := range k.ready {
		if !slices.ContainsFunc(victims, func(v Victim) bool { return v.Target == target }) {
			others = append(others, g)
			delete(k.ready, target)
		}
	}
	return others
}

// takeReady removes and returns the prepared pidfds of a target.
func (k *Killer) takeReady(target Target) *pidfdSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.takeReadyLocked(target)
}

func (k *Killer) takeReadyLocked(target Target) *pidfdSet {
	g := k.ready[target]
	delete(k.ready, target)
	if g == nil {
		g = newPidfdSet(target, k.open)
	}
	return g
}

// storeReady keeps prepared pidfds, unless the pod is being killed by now.
func (k *Killer) storeReady(uid types.UID, g *pidfdSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || k.inFlight[uid] != nil {
		g.closeAll()
		return
	}
	k.ready[g.target] = g
}
