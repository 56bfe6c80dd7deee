package recorder

import (
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// key is the first record of a segment: a scenario without steps, and when its
// time begins.
type key struct {
	Begins   time.Time     `json:"begins"`
	Version  string        `json:"version"`
	Scenario simulate.File `json:"scenario"`
}

// record is one line of a segment: a pass, or the end of a kill.
type record struct {
	At     time.Time          `json:"at"`
	Step   *simulate.FileStep `json:"step,omitempty"`
	Source control.Source     `json:"source,omitempty"`
	DryRun bool               `json:"dryRun,omitempty"`
	// Evictions were decided in the pass, those whose kill could not begin among
	// them.
	Evictions []decided `json:"evictions,omitempty"`
	Ended     *ended    `json:"ended,omitempty"`
	// Steps before evictions that were taken, or ended, in the pass.
	Steps []Taken `json:"steps,omitempty"`
	// Lost counts the reports that were not recorded in time, since the start.
	Lost uint64 `json:"lost,omitempty"`
}

// decided is an eviction and its ranking.
type decided struct {
	Pod                string              `json:"pod"`
	UID                types.UID           `json:"uid"`
	Signal             string              `json:"signal"`
	Hard               bool                `json:"hard"`
	Required           string              `json:"required,omitempty"`
	Available          string              `json:"available,omitempty"`
	Crossed            time.Time           `json:"crossed"`
	GracePeriodSeconds int64               `json:"gracePeriodSeconds"`
	Grace              time.Duration       `json:"grace"` // nanoseconds
	Message            string              `json:"message"`
	Because            string              `json:"because"`
	Failed             bool                `json:"failed,omitempty"`
	Held               string              `json:"held,omitempty"` // as of nodestatus.Eviction
	Ranking            []nodestatus.Ranked `json:"ranking,omitempty"`
}

// ended is what became of a kill.
type ended struct {
	UID       types.UID `json:"uid"`
	Signalled time.Time `json:"signalled,omitzero"`
	Killed    time.Time `json:"killed,omitzero"`
	Gone      time.Time `json:"gone,omitzero"`
	Freed     string    `json:"freed,omitempty"`
	Error     string    `json:"error,omitempty"`
}

func end(k *kill.Result) *ended {
	e := &ended{UID: k.UID, Signalled: k.Signalled, Killed: k.Killed, Gone: k.Gone}
	if freed, known := k.Freed.Get(); known {
		e.Freed = eviction.MemoryAvailable.Quantity(freed)
	}
	if k.Err != nil {
		e.Error = k.Err.Error()
	}
	return e
}

// keptRanking bounds the ranking that is kept of a decision.
const keptRanking = 20

// decisions are the evictions of a pass.
func decisions(r *control.Report) []decided {
	var all []decided
	var met []eviction.Met
	add := func(e *eviction.Eviction, ranking []eviction.Ranked, failed bool) {
		d := decided{
			Pod: e.Pod.String(), UID: e.Pod.UID, Signal: e.Signal.String(), Hard: e.Hard, Crossed: e.Since,
			GracePeriodSeconds: e.GracePeriodSeconds, Grace: e.Grace, Message: e.Message, Because: e.Because, Failed: failed, Held: e.Held(),
			Ranking: nodestatus.RankedPods(e.Signal, ranking[:min(len(ranking), keptRanking)]),
		}
		for i := range met {
			if met[i].Signal == e.Signal && met[i].Hard() == e.Hard {
				d.Required, d.Available = e.Signal.Quantity(met[i].Required), e.Signal.Quantity(met[i].Available)
			}
		}
		all = append(all, d)
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		met = append(met, d.Met...)
		for j := range d.Evictions {
			add(&d.Evictions[j], d.Ranking, false)
		}
	}
	for i := range r.Failed {
		add(&r.Failed[i], nil, true)
	}
	return all
}

// step is the pass as a scenario has it; its usage and pods are filled in by the
// recorder.
func step(r *control.Report, begins time.Time) *simulate.FileStep {
	s := &simulate.FileStep{At: metav1.Duration{Duration: r.At.Sub(begins)}, Event: r.Pass == eviction.Event, Watch: r.Pass == eviction.Watch, Strangers: r.UnknownPods, Signals: map[string]json.RawMessage{}}
	age := func(t time.Time) metav1.Duration { return metav1.Duration{Duration: max(0, r.At.Sub(t))} }
	for _, signal := range eviction.Signals() {
		o := r.Observations[signal]
		if !o.Available.IsKnown() {
			continue
		}
		measured := simulate.FileSignal{Available: quantity(o.Available), Capacity: quantity(o.Capacity), Age: age(o.Time), Repeated: r.Repeated[signal], PerSecond: o.PerSecond}
		if left, falls := o.UsedUpIn.Get(); falls {
			measured.UsedUpIn = &metav1.Duration{Duration: time.Duration(left)}
		}
		if signal == eviction.MemoryStall {
			full := stats.Known(stats.WholeTime).Minus(o.Available)
			measured.Available, measured.Capacity, measured.Full, measured.Some, measured.ReadBack = nil, nil, share(full), share(o.Some), quantity(o.ReadBack)
		}
		raw, _ := json.Marshal(measured) // of numbers
		s.Signals[signal.String()] = raw
	}
	for _, o := range r.Reclaims {
		if o.Ended {
			s.Reclaimed = append(s.Reclaimed, o.For.String())
		} else {
			s.Reclaiming = append(s.Reclaiming, o.For.String())
		}
	}
	for i := range r.Failed {
		s.KillFails = append(s.KillFails, r.Failed[i].Pod.String())
	}
	for _, pod := range r.Exited {
		s.Exited = append(s.Exited, pod.String())
	}
	for i := range r.NotRestarted {
		s.RestartFails = append(s.RestartFails, r.NotRestarted[i].Pod.String())
	}
	for i := range r.NotResumed {
		s.KillFails = append(s.KillFails, r.NotResumed[i].Pod.String())
	}
	for i := range r.Decisions {
		for _, e := range r.Decisions[i].Evictions {
			put(&s.Kills, e.Pod.String(), simulate.FileKill{Reported: true})
		}
		for j := range r.Decisions[i].Restarts {
			put(&s.Kills, r.Decisions[i].Restarts[j].Pod.String(), simulate.FileKill{Reported: true})
		}
	}
	if r.DiskScans {
		s.DiskScan = &simulate.FileDiskScan{}
		if !r.ScannedSince.IsZero() {
			since := age(r.ScannedSince)
			s.DiskScan.Age = &since
		}
	}
	if r.Started != nil {
		started := r.Started.Keep(r.Eviction, r.At)
		s.State = &started
	}
	for _, o := range r.Outcomes {
		ended := simulate.FileEnd{Signalled: o.Signalled, Failed: o.Failed}
		if !o.Failed {
			ended.Age = age(o.Ended)
		}
		put(&s.Ended, o.UID, ended)
	}
	for _, left := range r.TasksLeft {
		put(&s.TasksLeft, left.UID, simulate.FileTasks{Tasks: left.Tasks, Removed: left.Removed})
	}
	for _, pod := range r.Restarted {
		put(&s.Restarted, pod.UID, simulate.FileRestart{Forbidden: pod.Forbidden})
	}
	s.Arrived, s.Withdrawn = r.Arrived, r.Withdrawn
	outcomes(r, s)
	for _, u := range r.VictimUsage {
		put(&s.VictimUsage, u.UID, *resource.NewQuantity(u.Memory, resource.BinarySI))
	}
	return s
}

// usage is what a candidate uses as a scenario has it.
func usage(c *eviction.Candidate) *simulate.FileUsage {
	if c.Usage == nil {
		return nil
	}
	u := &simulate.FileUsage{
		Memory: quantity(c.Usage.Memory), Swap: quantity(c.Usage.Swap), PIDs: quantity(c.Usage.Processes), Threads: quantity(c.Usage.Threads), Growth: c.Growth,
		Files: volume(&c.Usage.Files), Unlinked: volume(&c.Usage.Unlinked), Own: volume(&c.Usage.Own), Partial: c.Usage.Partial,
	}
	if u.Stalled = share(c.Stalled); c.ReadBack != 0 {
		u.ReadBack = resource.NewQuantity(c.ReadBack, resource.BinarySI)
	}
	for i := range min(len(c.Usage.Containers), len(c.Pod.Containers)) {
		used := &c.Usage.Containers[i]
		container := simulate.FileContainerUsage{
			Memory: quantity(used.Memory), Rootfs: quantity(used.Rootfs), RootfsInodes: quantity(used.RootfsInodes),
			Logs: quantity(used.Logs), LogsInodes: quantity(used.LogsInodes), LogsElsewhere: used.LogsElsewhere, Growth: used.Growth,
		}
		if container != (simulate.FileContainerUsage{}) {
			put(&u.Containers, c.Pod.Containers[i].Name, container)
		}
	}
	for i := range min(len(c.Usage.Volumes), len(c.Pod.Volumes)) {
		if used := &c.Usage.Volumes[i]; *used != (stats.Volume{}) {
			put(&u.Volumes, c.Pod.Volumes[i].Name, volume(used))
		}
	}
	return u
}

func volume(v *stats.Volume) simulate.FileVolumeUsage {
	return simulate.FileVolumeUsage{Used: quantity(v.Used), Inodes: quantity(v.Inodes), Elsewhere: v.Elsewhere}
}

func share(a stats.Amount) *eviction.Share {
	n, known := a.Get()
	if !known {
		return nil
	}
	share := eviction.Share(n)
	return &share
}

func put[K comparable, V any](m *map[K]V, name K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[name] = value
}

func quantity(a stats.Amount) *resource.Quantity {
	n, known := a.Get()
	if !known {
		return nil
	}
	return resource.NewQuantity(n, resource.BinarySI)
}

// redacted is the part of a pod's manifest that matters for a decision.
func redacted(pod *v1.Pod) v1.Pod {
	p := podspec.Reduce(pod)
	p.ResourceVersion, p.Spec.NodeName, p.Status.QOSClass = "", "", ""
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			containers[i].Image = ""
		}
	}
	return *p
}
