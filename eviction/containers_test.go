package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

const mib = 1 << 20

// containerWorld is a node of 2 GiB whose containers grow and shrink at random, are restarted, are resized, and are killed
// with their pods. Now and then evictd is killed, and the next one begins with what was kept.
type containerWorld struct {
	t    *testing.T
	r    *rand.Rand
	seed uint64
	cfg  eviction.Config
	st   eviction.State
	now  time.Time
	pods []*worldPod
	made int
	// restarted is when a container of a pod was last restarted; kills are those that have begun.
	restarted map[types.UID]time.Time
	kills     map[types.UID]string // the container, or "" for the pod
	// raised are the limits that were granted, and when.
	raised map[string]grant

	restarts, resizes, evictions int
}

type grant struct {
	limit int64
	at    time.Time
}

// worldPod is a pod and the memory of its containers; negative where one does not run.
type worldPod struct {
	*eviction.Pod
	memory []int64
	growth []int64
}

func newContainerWorld(t *testing.T, seed uint64) *containerWorld {
	w := &containerWorld{
		t: t, r: rand.New(rand.NewPCG(seed, 2)), seed: seed, now: start,
		restarted: map[types.UID]time.Time{}, kills: map[types.UID]string{}, raised: map[string]grant{},
	}
	w.cfg = eviction.New(eviction.Config{
		Thresholds: []eviction.Threshold{
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 100 * mib}},
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 300 * mib}, Grace: 5 * time.Second},
		},
		HardGrace: time.Second, MaxPodGracePeriod: 5, MeasuresRelief: w.r.IntN(2) == 0, SoftPatience: one(w.r, 0, 2*time.Second),
		Restarts: eviction.Restarts{BackOff: 30 * time.Second, Grace: 5 * time.Second},
		Resizes:  eviction.Resizes{Namespaces: []string{"resized"}, Interval: 30 * time.Second},
		Warnings: eviction.Warnings{Lead: 5 * time.Second},
	}, eviction.SharedFs)
	for range 5 {
		w.add()
	}
	return w
}

func (w *containerWorld) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, %v: %s", w.seed, w.now.Sub(start), fmt.Sprintf(format, args...))
}

func (w *containerWorld) add() {
	w.made++
	name := fmt.Sprint("pod", w.made)
	p := &worldPod{Pod: &eviction.Pod{
		UID: types.UID(name), Name: name, Namespace: one(w.r, "resized", "resized", "other"), QOS: one(w.r, v1.PodQOSBurstable, v1.PodQOSGuaranteed),
		ResizeBound: one[int64](w.r, 0, 300*mib, 600*mib), Protection: one(w.r, "", "", "", eviction.StaticPod), Estimated: w.r.IntN(8) == 0,
	}}
	for i := range one(w.r, 1, 2, 3, 3, 3) {
		c := eviction.Container{Name: fmt.Sprint("c", i), Restart: one(w.r, eviction.NotRestarted, eviction.RestartedIfKilled, eviction.AlwaysRestarted, eviction.AlwaysRestarted)}
		if c.MemoryLimit = one[int64](w.r, 0, 100*mib, 200*mib); p.QOS == v1.PodQOSGuaranteed {
			c.MemoryLimit = 100 * mib
		}
		c.MemoryRequest.Set(one(w.r, 150*mib, w.r.Int64N(150)*mib))
		if p.QOS == v1.PodQOSGuaranteed {
			c.MemoryRequest.Set(c.MemoryLimit)
		}
		if w.r.IntN(6) == 0 {
			c.NotResizable = "a resize restarts it"
		}
		p.MemoryRequest += c.MemoryRequest.Value()
		p.Containers, p.memory, p.growth = append(p.Containers, c), append(p.memory, w.r.Int64N(60)*mib), append(p.growth, 0)
	}
	w.pods = append(w.pods, p)
}

// live lets a second or so pass.
func (w *containerWorld) live() {
	w.now = w.now.Add(time.Duration(100+w.r.IntN(2000)) * time.Millisecond)
	for _, p := range w.pods {
		for i := range p.memory {
			before := p.memory[i]
			switch w.r.IntN(8) {
			case 0, 1, 2:
				p.memory[i] += w.r.Int64N(one[int64](w.r, 10, 60, 300)) * mib
			case 3:
				p.memory[i] /= 2
			case 4:
				if w.r.IntN(8) == 0 {
					p.memory[i] = -1
				}
			}
			if limit := p.Containers[i].MemoryLimit; limit > 0 {
				p.memory[i] = min(p.memory[i], limit)
			}
			p.growth[i] = p.memory[i] - max(0, before)
		}
	}
}

// endKills ends kills that have begun: a container, which may be started again, or a pod.
func (w *containerWorld) endKills() (outcomes []eviction.Outcome) {
	for _, p := range slices.Clone(w.pods) {
		container, killed := w.kills[p.UID]
		if !killed || w.r.IntN(3) == 0 {
			continue
		}
		delete(w.kills, p.UID)
		if w.r.IntN(8) == 0 {
			outcomes = append(outcomes, eviction.Outcome{UID: p.UID, Failed: true})
			continue
		}
		outcomes = append(outcomes, eviction.Outcome{UID: p.UID, Ended: w.now, Signalled: true})
		if container == "" {
			w.pods = slices.DeleteFunc(w.pods, func(other *worldPod) bool { return other == p })
			w.add()
			continue
		}
		for i := range p.Containers {
			if p.Containers[i].Name == container {
				p.memory[i] = one[int64](w.r, -1, 0, 10*mib)
			}
		}
	}
	return outcomes
}

// input is what evictd measures.
func (w *containerWorld) input(kind eviction.Pass) eviction.Input {
	in := eviction.Input{Now: w.now, Pass: kind}
	available := int64(2048 * mib)
	for _, p := range w.pods {
		u := &stats.Pod{Processes: stats.Known(1)}
		var sum int64
		for i, memory := range p.memory {
			c := stats.Container{}
			if memory >= 0 {
				c.Memory, c.Growth = stats.Known(memory), p.growth[i]
				sum += memory
			}
			u.Containers = append(u.Containers, c)
		}
		u.Memory = stats.Known(sum)
		available -= sum
		in.Candidates = append(in.Candidates, eviction.Candidate{Pod: p.Pod, Usage: u})
	}
	available = max(0, available-one(w.r, 0, 300*mib, w.r.Int64N(1500)*mib))
	in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available), Capacity: stats.Known(2048 * mib), Time: w.now}
	in.Signals[eviction.AllocatableMemoryAvailable].Capacity = stats.Known(1500 * mib)
	return in
}

// worldPass is the victims of a pass.
type worldPass struct {
	resumed   []eviction.Resumed
	evictions []eviction.Eviction
	restarts  []eviction.ContainerRestart
}

// run runs a pass under a configuration. Kills begin unless refuses says otherwise.
func (w *containerWorld) run(cfg *eviction.Config, st eviction.State, in eviction.Input, refuses func() bool) (eviction.State, worldPass) {
	var p worldPass
	candidates := in.Candidates
	for again, calls := true, 0; again; in.Pass, calls = eviction.Continue, calls+1 {
		if calls > 50 {
			w.fail("the pass does not end")
		}
		var d eviction.Decision
		st, d = eviction.Decide(cfg, st, in)
		in.Outcomes = nil
		again = d.NeedUsage || d.NeedContainers != nil
		if d.NeedUsage {
			in.Candidates, in.Sampled = candidates, true
		}
		if d.NeedContainers != nil {
			in.Detailed = d.NeedContainers.UID
		}
		p.resumed = append(p.resumed, d.Resumed...)
		for _, e := range d.Evictions {
			if refuses() {
				in.Outcomes, again = append(in.Outcomes, eviction.Outcome{UID: e.Pod.UID, Failed: true}), true
				continue
			}
			p.evictions = append(p.evictions, e)
		}
		for _, r := range d.Restarts {
			if in.Detailed != r.Pod.UID {
				w.fail("a container of %v is restarted by figures of before the pass", r.Pod)
			}
			if refuses() {
				in.Outcomes, again = append(in.Outcomes, eviction.Outcome{UID: r.Pod.UID, Failed: true}), true
				continue
			}
			p.restarts = append(p.restarts, r)
		}
	}
	return st, p
}

// pressure runs a pass and checks its victims.
func (w *containerWorld) pressure() {
	outcomes := w.endKills()
	in := w.input(one(w.r, eviction.Housekeeping, eviction.Event))
	in.Outcomes = outcomes
	before := w.st
	never := func() bool { return false }
	// The same pass without restarts has a victim where this one has, and not otherwise.
	plain := w.cfg
	plain.Restarts = eviction.Restarts{}
	_, without := w.run(&plain, before, in, never)
	_, with := w.run(&w.cfg, before, in, never)
	if len(without.evictions) != len(with.evictions)+len(with.restarts) {
		w.fail("without restarts %d pods are evicted, with them %d, and %d containers restarted", len(without.evictions), len(with.evictions), len(with.restarts))
	}
	var p worldPass
	w.st, p = w.run(&w.cfg, before, in, func() bool { return w.r.IntN(8) == 0 })
	if len(p.evictions)+len(p.restarts) > 1 {
		w.fail("%d evictions and %d restarts in a pass", len(p.evictions), len(p.restarts))
	}
	for i := range p.resumed {
		w.kills[p.resumed[i].UID] = ""
	}
	for i := range p.restarts {
		w.checkRestart(&p.restarts[i], &in)
		w.checkAlone(&p.restarts[i].Eviction, &before, &in)
		w.kills[p.restarts[i].Pod.UID] = p.restarts[i].Name()
		w.restarts++
	}
	for i := range p.evictions {
		w.checkAlone(&p.evictions[i], &before, &in)
		w.kills[p.evictions[i].Pod.UID] = ""
		w.evictions++
	}
}

// checkAlone fails where another victim is being ended for as hard a threshold.
func (w *containerWorld) checkAlone(e *eviction.Eviction, before *eviction.State, in *eviction.Input) {
	for _, f := range before.InFlight {
		ended := slices.ContainsFunc(in.Outcomes, func(o eviction.Outcome) bool { return o.UID == f.UID })
		if !ended && !f.Unattended && !f.Overdue(w.now) && (f.Hard || !e.Hard) && !f.Stuck {
			w.fail("%v is a victim while %q of %s is being ended", e.Pod, f.Container, f.UID)
		}
	}
}

func (w *containerWorld) checkRestart(r *eviction.ContainerRestart, in *eviction.Input) {
	if last, is := w.restarted[r.Pod.UID]; is && w.now.Sub(last) < w.cfg.Restarts.BackOff {
		w.fail("a container of %v is restarted %v after the last", r.Pod, w.now.Sub(last))
	}
	w.restarted[r.Pod.UID] = w.now
	at := slices.IndexFunc(w.pods, func(p *worldPod) bool { return p.UID == r.Pod.UID })
	p := w.pods[at]
	var others, running int64
	for i, memory := range p.memory {
		if i != r.Container && memory >= 0 {
			others, running = others+memory, running+1
		}
	}
	rule, request := p.Containers[r.Container].Restart, p.MemoryRequest-p.Containers[r.Container].MemoryRequest.Value()
	switch {
	case running == 0:
		w.fail("the last running container of %v is restarted", r.Pod)
	case p.Protection != "" || p.Estimated || rule == eviction.NotRestarted:
		w.fail("container %s of %v is restarted: protection %q, estimated %t, rule %d", r.Name(), r.Pod, p.Protection, p.Estimated, rule)
	case rule == eviction.RestartedIfKilled && (!r.Hard || r.Grace > 0):
		w.fail("container %s of %v has a grace of %v, hard %t", r.Name(), r.Pod, r.Grace, r.Hard)
	case others > request:
		w.fail("the other containers of %v use %d MiB of %d", r.Pod, others/mib, request/mib)
	case w.lacks(in, r.Hard) > p.memory[r.Container]:
		w.fail("the end of container %s of %v does not suffice", r.Name(), r.Pod)
	}
}

// lacks is what is missing of a threshold.
func (w *containerWorld) lacks(in *eviction.Input, hard bool) int64 {
	for _, t := range w.cfg.Thresholds {
		if t.Hard() == hard {
			return t.Value.Amount - in.Signals[eviction.MemoryAvailable].Available.Or(0)
		}
	}
	return 0
}

// watch runs a pass of steps and checks the resizes. The kubelet applies most of them.
func (w *containerWorld) watch() {
	in := w.input(eviction.Watch)
	var d eviction.Decision
	w.st, d = eviction.Decide(&w.cfg, w.st, in)
	for i := range d.Steps {
		s := &d.Steps[i]
		if s.Step != eviction.Resize || s.Over || s.Bytes == 0 {
			continue
		}
		w.resizes++
		at := slices.IndexFunc(s.Pod.Containers, func(c eviction.Container) bool { return c.Name == s.Container })
		c, name := &s.Pod.Containers[at], s.Pod.Name+"/"+s.Container
		last, before := w.raised[name]
		switch {
		case before && w.now.Sub(last.at) < w.cfg.Resizes.Interval:
			w.fail("%s is resized %v after the last time", name, w.now.Sub(last.at))
		case s.Bytes > s.Pod.ResizeBound || s.Bytes <= c.MemoryLimit || s.Bytes > c.MemoryLimit+c.MemoryLimit/2:
			w.fail("%s is resized from %d to %d MiB, bound %d", name, c.MemoryLimit/mib, s.Bytes/mib, s.Pod.ResizeBound/mib)
		case s.Pod.Namespace != "resized" || c.NotResizable != "" || s.Pod.Estimated:
			w.fail("%s is resized", name)
		}
		w.raised[name] = grant{s.Bytes, w.now}
	}
	w.checkRoom(&in, d.Steps)
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Step == eviction.Resize && s.Bytes > 0 && w.r.IntN(4) > 0 {
			w.apply(s)
		}
	}
}

// apply raises the limit as a kubelet does.
func (w *containerWorld) apply(s *eviction.StepAction) {
	for _, p := range w.pods {
		if p.UID != s.Pod.UID {
			continue
		}
		resized := *p.Pod
		resized.Containers = slices.Clone(p.Containers)
		for i := range resized.Containers {
			if c := &resized.Containers[i]; c.Name == s.Container {
				if p.QOS == v1.PodQOSGuaranteed {
					resized.MemoryRequest += s.Bytes - c.MemoryLimit
				}
				c.MemoryLimit = s.Bytes
			}
		}
		p.Pod = &resized
	}
}

// checkRoom fails where a limit was raised although the node would be short if all containers whose limits were raised
// within the interval used them, or its pods would request more than it has.
func (w *containerWorld) checkRoom(in *eviction.Input, taken []eviction.StepAction) {
	if !slices.ContainsFunc(taken, func(s eviction.StepAction) bool { return s.Step == eviction.Resize && s.Bytes > 0 }) {
		return
	}
	var grows, requests int64
	guaranteed := false
	for _, p := range w.pods {
		requests += p.MemoryRequest
		for i, c := range p.Containers {
			g, is := w.raised[p.Name+"/"+c.Name]
			if !is || w.now.Sub(g.at) >= w.cfg.Resizes.Interval {
				continue
			}
			grows += max(0, g.limit-max(0, p.memory[i]))
			if p.QOS == v1.PodQOSGuaranteed {
				requests += max(0, g.limit-c.MemoryLimit)
				guaranteed = guaranteed || g.at.Equal(w.now)
			}
		}
	}
	if available := in.Signals[eviction.MemoryAvailable].Available.Or(0); available-grows < 300*mib {
		w.fail("limits are raised by which containers may grow by %d MiB of %d", grows/mib, available/mib)
	}
	if guaranteed && requests > 1500*mib {
		w.fail("all pods would request %d MiB", requests/mib)
	}
}

// TestRestartsAndResizesStayWithinTheirBounds draws what containers use at random.
//
// rule: M.132
// rule: M.149
// rule: M.150
// rule: M.151
// rule: M.152
// rule: M.156
func TestRestartsAndResizesStayWithinTheirBounds(t *testing.T) {
	var restarts, resizes, evictions int
	for seed := range uint64(200) {
		w := newContainerWorld(t, seed)
		for range 150 {
			w.live()
			if w.r.IntN(2) == 0 {
				w.pressure()
			}
			w.watch()
			if w.r.IntN(40) == 0 {
				kept := w.st.Keep(&w.cfg, w.now)
				w.st, w.kills = kept.Restore(&w.cfg, w.now, 0), map[types.UID]string{}
			}
		}
		restarts, resizes, evictions = restarts+w.restarts, resizes+w.resizes, evictions+w.evictions
	}
	if t.Logf("%d restarts, %d resizes, %d evictions", restarts, resizes, evictions); min(restarts, resizes, evictions) < 100 {
		t.Error("too few of each to find a fault")
	}
}
