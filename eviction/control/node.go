package control

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
)

// node has the loop carry out what eviction asks for.
type node struct{ *Loop }

// refusal is a kill that did not begin; it is logged after the pass.
type refusal struct {
	pod *eviction.Pod
	err error
}

// Measure implements eviction.Node.
func (n node) Measure(processes bool) []eviction.Candidate { return n.sample(processes) }

// MeasureContainers implements eviction.Node.
func (n node) MeasureContainers(pod *eviction.Pod) { n.readContainers(n.indexOf(pod.UID)) }

// UnknownPods implements eviction.Node.
func (n node) UnknownPods() bool { return n.ports.UnknownPods.UnknownPods(n.pods) }

// ScanDisks implements eviction.Node.
func (n node) ScanDisks() { n.ports.DiskScanner.Request() }

// Reclaim implements eviction.Node.
func (n node) Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need, _ *eviction.Observations) bool {
	if n.ports.Reclaimer != nil {
		n.ports.Reclaimer.Reclaim(s, steps, need)
	}
	return n.ports.Reclaimer != nil
}

// Take implements eviction.Node.
func (n node) Take(s *eviction.StepAction) {
	if n.ports.Steps != nil {
		n.ports.Steps.Take(s)
	}
}

// Withdraw implements eviction.Node.
func (n node) Withdraw(uid types.UID) bool {
	killer, requests := n.ports.Killer.(Withdrawer)
	return requests && killer.Withdraw(uid)
}

// Shorten implements eviction.Node.
func (n node) Shorten(s eviction.Shortened) { n.ports.Killer.Hasten(s.UID, s.Grace) }

// Kill implements eviction.Node. In a dry run nothing is killed. A pod that has ended by itself, whose cgroup may be left with page
// cache, is not killed, unless for what it holds on a disk.
func (n node) Kill(e *eviction.Eviction) error {
	i := n.indexOf(e.Pod.UID)
	if e.Signal.Condition() != eviction.DiskPressure && n.ports.Killer.Ended(n.pods[i].Target) { // it is no candidate from now on
		n.figures[i].gone = time.Now()
		n.refusals = append(n.refusals, refusal{n.pods[i].Pod, errEnded})
		return errEnded
	}
	held := n.readContainers(i)
	if n.cfg.Eviction.DryRun {
		return nil
	}
	victim := n.victim(i)
	victim.Grace, victim.Soft = e.Grace, !e.Hard
	if e.Hard { // a soft kill may begin late
		victim.Held = held
	}
	if n.ports.Intents == nil {
		return n.begin(i, victim)
	}
	f := n.driver.State.Victim(e.Pod.UID)
	n.ports.Intents.Put(e, f)
	err := n.begin(i, victim)
	if err != nil {
		n.ports.Intents.Withdraw(f)
	}
	return err
}

var errEnded = errors.New("the pod has no process any more")

var errNoContainer = errors.New("the container cannot be ended alone: its cgroup is not known")

// Restart implements eviction.Node. In a dry run nothing is killed.
func (n node) Restart(r *eviction.ContainerRestart) error {
	i := n.indexOf(r.Pod.UID)
	if n.cfg.Eviction.DryRun {
		return nil
	}
	victim := n.victim(i)
	if victim.Target = nil; n.pods[i].Container != nil {
		victim.Target, victim.Usage = n.pods[i].Container(r.Container)
	}
	if victim.Target == nil {
		n.refusals = append(n.refusals, refusal{r.Pod, errNoContainer})
		return errNoContainer
	}
	victim.Container, victim.Grace, victim.Soft = r.Name(), r.Grace, !r.Hard
	if r.Hard {
		victim.Held = n.figures[i].usage.Containers[r.Container].Memory
	}
	return n.begin(i, victim)
}

// Resume implements eviction.Node.
func (n node) Resume(r *eviction.Resumed) error {
	i := n.indexOf(r.UID)
	victim := n.victim(i)
	victim.Grace, victim.Soft = r.Left, !r.Hard
	return n.begin(i, victim)
}

// EndAgain implements eviction.Node.
func (n node) EndAgain(pod *eviction.Pod) {
	i := n.indexOf(pod.UID)
	_ = n.begin(i, n.victim(i)) // a refusal is logged, and what runs is reported again
}

func (n node) victim(i int) kill.Victim {
	pod := &n.pods[i]
	return kill.Victim{UID: pod.UID, Name: n.figures[i].name, Target: pod.Target, Usage: pod.Usage}
}

func (n node) begin(i int, v kill.Victim) error {
	err := n.ports.Killer.Kill(v)
	if err != nil {
		n.refusals = append(n.refusals, refusal{n.pods[i].Pod, err})
	}
	return err
}

// readContainers reads what the containers of a victim hold, for the message, and
// returns what the pod holds, bytes. The other figures stay those it was chosen by.
func (n node) readContainers(i int) (held stats.Amount) {
	meter, usage := n.pods[i].Meter, &n.figures[i].usage
	if meter == nil {
		return held
	}
	_ = meter.ReadMemory(&n.reading, true)
	for c := range min(len(n.reading.Containers), len(usage.Containers)) {
		usage.Containers[c].Memory = n.reading.Containers[c].Memory
	}
	return n.reading.Memory
}
