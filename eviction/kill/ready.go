package kill

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Bounds of what is held of pods that are not being killed.
const (
	maxReady       = 64 // pods
	maxReadyOfEach = 16 // processes
)

// Prepare replaces the pods that are to be signalled without anything being
// opened first: it opens their processes, and what their usage is read through.
// Of more than 64 pods the first count. It takes a while, and is for one
// goroutine that follows the pods. A process that has left its pod since is
// signalled with it.
func (k *Killer) Prepare(pods []Victim) {
	pods = pods[:min(len(pods), maxReady)]
	for _, v := range pods {
		g := k.grip(v.UID, v.Target)
		if !v.Tasks.IsKnown() || v.Tasks != g.tasks {
			g.refresh(maxReadyOfEach)
			g.tasks = v.Tasks
			if v.Usage != nil {
				v.Usage()
			}
		}
		k.keep(v.UID, g)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, g := range k.ready {
		if !slices.ContainsFunc(pods, func(v Victim) bool { return v.UID == uid }) {
			g.letGo()
			delete(k.ready, uid)
		}
	}
}

// grip takes what is ready of a pod, nothing where the pod has another target.
func (k *Killer) grip(uid types.UID, target Target) *grip {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.gripLocked(uid, target)
}

func (k *Killer) gripLocked(uid types.UID, target Target) *grip {
	g := k.ready[uid]
	delete(k.ready, uid)
	if g != nil && g.target != target {
		g.letGo()
		g = nil
	}
	if g == nil {
		g = newGrip(target, k.open)
	}
	return g
}

// keep makes ready what was prepared, unless the pod is being killed meanwhile.
func (k *Killer) keep(uid types.UID, g *grip) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stopped || k.inFlight[uid] != nil {
		g.letGo()
		return
	}
	k.ready[uid] = g
}
