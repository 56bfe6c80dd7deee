package kill

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of the pidfds of pods that are not being killed.
const (
	maxReady       = 64 // pods
	maxReadyOfEach = 16 // processes
)

// Prepare replaces the pods that Kill can signal without opening anything: it opens
// pidfds of their processes, and the files that Usage reads. It uses the first 64 pods.
// It blocks while it reads /proc and cgroup files; one goroutine calls it. A process
// that has left its pod since is signalled too.
func (k *Killer) Prepare(pods []Victim) {
	pods = pods[:min(len(pods), maxReady)]
	for _, v := range pods {
		g := k.takeReady(v.UID, v.Target)
		if !v.Tasks.IsKnown() || v.Tasks != g.tasks {
			g.refresh(maxReadyOfEach)
			g.tasks = v.Tasks
			if v.Usage != nil {
				v.Usage()
			}
		}
		k.storeReady(v.UID, g)
	}
	for _, g := range k.takeOthers(pods) {
		g.closeAll()
	}
}

// takeOthers removes and returns the prepared pidfds of all other pods.
func (k *Killer) takeOthers(pods []Victim) (others []*pidfdSet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, g := range k.ready {
		if !slices.ContainsFunc(pods, func(v Victim) bool { return v.UID == uid }) {
			others = append(others, g)
			delete(k.ready, uid)
		}
	}
	return others
}

// takeReady removes and returns the prepared pidfds of a pod. They are empty where the
// pod now has another target.
func (k *Killer) takeReady(uid types.UID, target Target) *pidfdSet {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.takeReadyLocked(uid, target)
}

func (k *Killer) takeReadyLocked(uid types.UID, target Target) *pidfdSet {
	g := k.ready[uid]
	delete(k.ready, uid)
	if g != nil && g.target != target {
		g.closeAll()
		g = nil
	}
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
	k.ready[uid] = g
}
