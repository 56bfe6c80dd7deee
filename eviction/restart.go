package eviction

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/podspec"
)

// Restarts is when a container of a victim of memory is ended in place of the pod, for a kubelet to start it
// again.
type Restarts struct {
	// BackOff is how long a pod is evicted after a restart of one of its containers; zero turns
	// restarts off.
	BackOff time.Duration
	// Grace is the longest time from SIGTERM to SIGKILL where a soft threshold is the cause.
	Grace time.Duration
}

// RestartRule says after which exits a kubelet starts a container again.
type RestartRule uint8

// The rules. RestartedIfKilled containers are started again if SIGKILL has ended them; another exit may
// complete them.
const (
	NotRestarted RestartRule = iota
	RestartedIfKilled
	AlwaysRestarted
)

// ContainerRestart is an eviction of one container: the pod and its other containers stay.
type ContainerRestart struct {
	Eviction
	// Container is an index of Pod.Containers.
	Container int
}

// Name is the name of the container.
func (r *ContainerRestart) Name() string { return r.Pod.Containers[r.Container].Name }

// Step is the restart as a step.
func (r *ContainerRestart) Step() StepAction {
	return StepAction{Step: RestartContainer, Pod: r.Pod, Container: r.Name(), Cause: cause(r.Signal, r.Hard), Because: r.Because}
}

// RestartedContainer is a restart that was decided not long ago.
type RestartedContainer struct {
	UID       types.UID
	Container string
	Signal    Signal
	Hard      bool
	At        time.Time
	// Failed says that no process of the container could be signalled.
	Failed bool
}

// restartRules gives each container of a digest its rule. Where a container writes to a volume in memory, its
// end does not free that.
func (p *Pod) restartRules(pod *v1.Pod) {
	inMemory := func(m v1.VolumeMount) bool {
		return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.Name == m.Name && v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory
		})
	}
	for i := range p.Containers {
		c := podspec.ContainerAt(pod, i)
		if c == nil || slices.ContainsFunc(c.VolumeMounts, inMemory) {
			continue
		}
		switch always, killed := podspec.Restarts(pod, i); {
		case always:
			p.Containers[i].Restart = AlwaysRestarted
		case killed:
			p.Containers[i].Restart = RestartedIfKilled
		}
	}
}

// mayRestart says whether a container of the pod may be restarted, whatever its containers use.
func (st *State) mayRestart(cfg *Config, s Signal, victim *Ranked) bool {
	return cfg.Restarts.BackOff > 0 && s.ofMemory() && victim.Measured && victim.Exceeds && !victim.Pod.Estimated && st.restarted(victim.Pod.UID) == nil &&
		len(victim.Pod.Containers) > 1 && slices.ContainsFunc(victim.Pod.Containers, func(c Container) bool { return c.Restart != NotRestarted })
}

// Restartable is the container of a victim that alone holds what the pod uses above its request: the others
// use no more than the rest of the request. It is -1 where there is none, and where no other container runs.
// The figures of the containers are those of the candidate.
func (r *Ranked) Restartable() int {
	if r.Candidate.Usage == nil {
		return -1
	}
	largest, running := -1, 0
	used := r.Candidate.Usage.Containers[:min(len(r.Candidate.Usage.Containers), len(r.Pod.Containers))]
	for i := range used {
		memory, runs := used[i].Memory.Get()
		if !runs {
			continue
		}
		if running++; largest < 0 || memory > used[largest].Memory.Or(0) {
			largest = i
		}
	}
	if running < 2 || r.Pod.Containers[largest].Restart == NotRestarted {
		return -1
	}
	share := r.Request - r.Pod.Containers[largest].MemoryRequest.Value()
	if r.Usage-used[largest].Memory.Or(0) > share {
		return -1
	}
	return largest
}

// restart restarts a container in place of the eviction of the victim at a place of a ranking, where its end frees
// what is missing. It says whether it does, or asks for what the containers use.
func (st *State) restart(cfg *Config, in *Input, t *Met, ranking []Ranked, place int, missing int64, known bool, held int64, d *Decision) bool {
	victim := &ranking[place]
	if !known || !st.mayRestart(cfg, t.Signal, victim) {
		return false
	}
	if in.Detailed != victim.Pod.UID {
		d.NeedContainers = victim.Pod
		in.Buffers.returnRanking(ranking)
		return true
	}
	i := victim.Restartable()
	if i < 0 || victim.Pod.Containers[i].Restart == RestartedIfKilled && !t.Hard() || victim.Candidate.Usage.Containers[i].Memory.Or(0) < missing {
		return false
	}
	d.Ranking, d.Restarts = ranking, append(in.Buffers.forRestarts(), ContainerRestart{Container: i, Eviction: Eviction{
		Pod: victim.Pod, Signal: t.Signal, Hard: t.Hard(), Since: t.Since, GracePeriodSeconds: restartGrace(cfg, t.Threshold, victim.Pod), met: *t, victim: victim,
	}})
	r := &d.Restarts[0]
	st.InFlight = in.Buffers.forInFlight(st.InFlight)
	st.pass.chosen = in.Buffers.forChosen(st.pass.chosen)
	st.start(cfg, in, &r.Eviction)
	f := &st.InFlight[len(st.InFlight)-1]
	f.Container, f.Patience = r.Name(), 0
	if victim.Pod.Containers[i].Restart == RestartedIfKilled { // SIGTERM may complete it
		f.Grace = 0
	}
	r.Grace = f.Grace
	st.chose(cfg, in, &r.Eviction, r.frees(), held)
	st.Restarts = append(in.Buffers.forRestarted(st.Restarts), RestartedContainer{UID: r.Pod.UID, Container: f.Container, Signal: r.Signal, Hard: r.Hard, At: in.Now})
	return true
}

// restartGrace is the announced grace of a container, in seconds.
func restartGrace(cfg *Config, t *Threshold, p *Pod) int64 {
	if t.Hard() {
		return 1
	}
	grace := int64(cfg.Restarts.Grace / time.Second)
	if p.TerminationGracePeriod != nil {
		grace = min(grace, *p.TerminationGracePeriod)
	}
	return max(1, grace)
}

// restarted is the last restart of a container of a pod that is within the back-off; nil without one.
func (st *State) restarted(uid types.UID) *RestartedContainer {
	if i := slices.IndexFunc(st.Restarts, func(r RestartedContainer) bool { return r.UID == uid }); i >= 0 {
		return &st.Restarts[i]
	}
	return nil
}

// failRestart records that a restart did not begin: its pod is evicted.
func (st *State) failRestart(uid types.UID) {
	st.Restarts = slices.Clone(st.Restarts)
	if r := st.restarted(uid); r != nil {
		r.Failed = true
	}
}

// forgetRestarts forgets those whose back-off is over.
func (st *State) forgetRestarts(cfg *Config, now time.Time) {
	st.Restarts = without(st.Restarts, func(r RestartedContainer) bool { return now.Sub(r.At) >= cfg.Restarts.BackOff })
}

// afterRestart is the place of a pod of which a container was restarted for this crossing of the threshold, which
// was not enough. It is evicted before pods that are within their requests; negative without one.
func (st *State) afterRestart(t *Met, ranking []Ranked) int {
	for i := range ranking {
		r := st.restarted(ranking[i].Pod.UID)
		if r != nil && !t.Since.IsZero() && !r.At.Before(t.Since) && ranking[i].Exempt() == "" && st.eligible(ranking[i].Pod) {
			return i
		}
	}
	return -1
}

// frees is what the end of the container frees, bytes.
func (r *ContainerRestart) frees() int64 {
	return r.victim.Candidate.Usage.Containers[r.Container].Memory.Or(0)
}

// explain writes the texts.
func (r *ContainerRestart) explain() {
	used := &r.victim.Candidate.Usage.Containers[r.Container]
	c := &r.Pod.Containers[r.Container]
	memory := used.Memory.Or(0)
	r.Message = fmt.Sprintf(podspec.NodeLowMessage+thresholdMetMessage+containerMessage+"The container is ended for the kubelet to start it again; the pod and its other containers stay. ",
		r.Signal.Resource(), r.Signal.Quantity(r.met.Required), r.Signal.Quantity(r.met.Available), c.Name, bytes(memory), written(c.MemoryRequest), r.Signal.Resource())
	r.Because = fmt.Sprintf("it alone uses more than the pod requested: %s, and the rest of the pod %s of %s requested", rounded(memory), rounded(max(0, r.victim.Usage-memory)), rounded(r.victim.Request))
}
