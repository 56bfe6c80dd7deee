package simulate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/stats"
)

// Scenario is a validated scenario, ready to run.
type Scenario struct {
	Name     string
	Warnings []string

	config eviction.Config
	first  []*eviction.Pod // those there from the start
	steps  []step
}

type step struct {
	at        time.Duration
	pass      eviction.Pass
	signals   eviction.Observations // times are filled in by Run from ages
	ages      [eviction.NumSignals]time.Duration
	repeated  [eviction.NumSignals]bool
	usage     map[string]usage
	reclaims  [2][eviction.NumSignals]int64 // by eviction.ReclaimStep
	add       []*eviction.Pod
	remove    []string
	runsOn    []eviction.Signal // whose reclaims do
	reclaimed []eviction.ReclaimOutcome
	unknown   bool
	killFails []string
	// restartFails are as of FileStep.
	restartFails []string
	kills        map[string]FileKill
	absent       []string
	exited       []string
	state        *eviction.Kept
	diskScan     *FileDiskScan
	ended        map[types.UID]FileEnd
	tasksLeft    []eviction.TasksLeft
	victims      []eviction.VictimUsage
	restarted    []eviction.Restarted
	arrived      []types.UID
	withdrawn    []types.UID

	stepOutcomes []eviction.StepOutcome
	fastest      eviction.Growth
}

// usage is what a candidate uses; without pod it has no statistics.
type usage struct {
	pod      *stats.Pod
	growth   int64
	readBack int64
	stalled  stats.Amount
}

// parser collects the faults of one scenario.
type parser struct {
	faults field.ErrorList
	in     *File
	out    *Scenario
	pods   map[string]*eviction.Pod // the last pod of each namespace/name
	uids   map[types.UID]bool
	// removed are uids that may be added again.
	removed map[types.UID]bool
	gone    map[string]bool // names whose pod was removed
}

// Parse reads and validates a scenario. The error joins every fault.
func Parse(data []byte) (*Scenario, error) { return ParseUnder(data, nil) }

// ParseUnder is Parse of a scenario that is run under another configuration
// than its own, unless that is nil.
func ParseUnder(data []byte, other *config.EvictdConfiguration) (*Scenario, error) {
	document, err := manifest.One(data, Kind)
	if err != nil {
		return nil, err
	}
	p := parser{in: &File{}, out: &Scenario{}, pods: map[string]*eviction.Pod{}, uids: map[types.UID]bool{}, removed: map[types.UID]bool{}, gone: map[string]bool{}}
	err = document.Decode(p.in)
	if other != nil {
		p.in.Spec.Config = *other
	}
	p.parse()
	return p.out, errors.Join(append(manifest.Faults(err), manifest.Faults(p.faults.ToAggregate())...)...)
}

func (p *parser) invalid(path *field.Path, value any, why string) {
	p.faults = append(p.faults, field.Invalid(path, value, why))
}

func (p *parser) parse() {
	if p.in.APIVersion != config.APIVersion || p.in.Kind != Kind {
		p.invalid(field.NewPath("kind"), p.in.APIVersion+" "+p.in.Kind, "expected "+config.APIVersion+" "+Kind)
	}
	spec := field.NewPath("spec")
	p.out.Name = p.in.Metadata.Name
	compiled, err := config.Compile(&p.in.Spec.Config, spec.Child("config"))
	for _, fault := range manifest.Faults(err) {
		var e *field.Error
		if errors.As(fault, &e) {
			p.faults = append(p.faults, e)
		}
	}
	p.out.Warnings = compiled.Warnings
	layout, ok := eviction.ParseLayout(p.in.Spec.Node.Filesystems)
	if !ok {
		p.faults = append(p.faults, field.NotSupported(spec.Child("node", "filesystems"), p.in.Spec.Node.Filesystems, []string{"shared", "imagefs", "split", "separate"}))
	}
	p.out.config = eviction.New(compiled.Eviction, layout)
	p.out.config.HardGrace = time.Second
	if grace := p.in.Spec.Config.HardEvictionGracePeriod; grace != nil {
		p.out.config.HardGrace = grace.Duration
	}
	daemon := &p.in.Spec.Daemon
	p.out.config.Lapse, p.out.config.SoftPatience, p.out.config.DryRun = daemon.Lapse.Duration, daemon.SoftPatience.Duration, daemon.DryRun
	p.out.config.MeasuresRelief = daemon.MeasuresRelief
	p.out.first = p.appear(spec.Child("pods"), p.in.Spec.Pods)
	for i := range p.in.Spec.Steps {
		p.step(spec.Child("steps").Index(i), &p.in.Spec.Steps[i])
	}
}

// appear digests manifests as of an API server without admission. A
// name may appear again with another pod: one that has a uid of its own, or whose
// predecessor was removed.
func (p *parser) appear(path *field.Path, manifests []v1.Pod) []*eviction.Pod {
	var pods []*eviction.Pod
	for i := range manifests {
		pod := manifests[i].DeepCopy()
		if pod.Namespace == "" && !eviction.Digest(pod).Outside {
			pod.Namespace = v1.NamespaceDefault
		}
		name := pod.Namespace + "/" + pod.Name
		again := pod.UID != "" || p.gone[name]
		if pod.UID == "" {
			pod.UID = types.UID(name)
			for n := 2; p.gone[name] && p.uids[pod.UID]; n++ {
				pod.UID = types.UID(fmt.Sprintf("%s#%d", name, n))
			}
		}
		if pod.Name == "" {
			p.faults = append(p.faults, field.Required(path.Index(i).Child("metadata", "name"), ""))
		}
		if p.pods[name] != nil && !again || p.uids[pod.UID] && !p.removed[pod.UID] {
			p.faults = append(p.faults, field.Duplicate(path.Index(i).Child("metadata"), name))
		}
		digest := eviction.Digest(pod)
		p.pods[name], p.uids[pod.UID] = digest, true
		delete(p.gone, name)
		pods = append(pods, digest)
	}
	return pods
}

func (p *parser) known(pod string) bool { return p.pods[pod] != nil }

// existing keeps the names that are pods, and faults the others.
func (p *parser) existing(path *field.Path, names []string) []string {
	for i, name := range names {
		if !p.known(name) {
			p.faults = append(p.faults, field.NotFound(path.Index(i), name))
		}
	}
	return names
}

func (p *parser) step(path *field.Path, in *FileStep) {
	s := step{at: in.At.Duration, unknown: in.Strangers, usage: map[string]usage{}, kills: in.Kills, state: in.State, diskScan: in.DiskScan, ended: in.Ended}
	if n := len(p.out.steps); s.at < 0 || n > 0 && s.at < p.out.steps[n-1].at {
		p.invalid(path.Child("at"), s.at.String(), "steps must be in time order, from 0s on")
	}
	if in.Event {
		s.pass = eviction.Event
	}
	if in.Watch {
		s.pass = eviction.Watch
	}
	s.remove = p.existing(path.Child("remove"), in.Remove)
	for _, name := range s.remove {
		p.gone[name] = true
		if pod := p.pods[name]; pod != nil {
			p.removed[pod.UID] = true
		}
	}
	s.add = p.appear(path.Child("add"), in.Add)
	s.killFails, s.restartFails = p.existing(path.Child("killFails"), in.KillFails), p.existing(path.Child("restartFails"), in.RestartFails)
	for _, name := range slices.Sorted(maps.Keys(in.Kills)) {
		if !p.known(name) {
			p.faults = append(p.faults, field.NotFound(path.Child("kills").Key(name), name))
		}
		if takes := in.Kills[name].Takes.Duration; takes < 0 {
			p.invalid(path.Child("kills").Key(name).Child("takes"), takes.String(), "must not be negative")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Usage)) {
		at := path.Child("usage").Key(name)
		if pod := p.pods[name]; pod != nil {
			s.usage[name] = p.usage(at, pod, in.Usage[name])
		} else {
			p.faults = append(p.faults, field.NotFound(at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Signals)) {
		at := path.Child("signals").Key(name)
		if signal, err := eviction.ParseSignal(name); err != nil {
			p.invalid(at, name, err.Error())
		} else {
			var long FileSignal
			s.signals[signal], long = p.signal(at, signal, in.Signals[name])
			s.ages[signal], s.repeated[signal] = long.Age.Duration, long.Repeated
		}
	}
	s.reclaims[eviction.DeadContainers] = p.reclaim(path.Child("nodeReclaim", "containers"), in.NodeReclaim.Containers)
	s.reclaims[eviction.UnusedImages] = p.reclaim(path.Child("nodeReclaim", "images"), in.NodeReclaim.Images)
	s.runsOn = p.signals(path.Child("reclaiming"), in.Reclaiming)
	for _, signal := range p.signals(path.Child("reclaimed"), in.Reclaimed) {
		s.reclaimed = append(s.reclaimed, eviction.ReclaimOutcome{For: signal, Ended: true})
	}
	s.absent, s.exited = p.existing(path.Child("absent"), in.Absent), p.existing(path.Child("exited"), in.Exited)
	for _, uid := range slices.Sorted(maps.Keys(in.TasksLeft)) {
		s.tasksLeft = append(s.tasksLeft, eviction.TasksLeft{UID: uid, Tasks: in.TasksLeft[uid].Tasks, Removed: in.TasksLeft[uid].Removed})
	}
	for _, uid := range slices.Sorted(maps.Keys(in.Restarted)) {
		s.restarted = append(s.restarted, eviction.Restarted{UID: uid, Forbidden: in.Restarted[uid].Forbidden})
	}
	s.arrived, s.withdrawn = in.Arrived, in.Withdrawn
	p.memory(path, in, &s)
	for _, uid := range slices.Sorted(maps.Keys(in.VictimUsage)) {
		memory := in.VictimUsage[uid]
		s.victims = append(s.victims, eviction.VictimUsage{UID: uid, Memory: p.amount(path.Child("victimUsage").Key(string(uid)), &memory).Or(0)})
	}
	p.out.steps = append(p.out.steps, s)
}

// signals reads names of signals.
func (p *parser) signals(path *field.Path, names []string) (signals []eviction.Signal) {
	for i, name := range names {
		signal, err := eviction.ParseSignal(name)
		if err != nil {
			p.invalid(path.Index(i), name, err.Error())
		}
		signals = append(signals, signal)
	}
	return signals
}

// reclaim reads what a step frees, by signal.
func (p *parser) reclaim(path *field.Path, in map[string]resource.Quantity) (freed [eviction.NumSignals]int64) {
	for _, name := range slices.Sorted(maps.Keys(in)) {
		q, at := in[name], path.Key(name)
		if signal, err := eviction.ParseSignal(name); err != nil {
			p.invalid(at, name, err.Error())
		} else {
			freed[signal] = p.amount(at, &q).Or(0)
		}
	}
	return freed
}

// most is a bound under which sums of amounts do not overflow.
const most = 1 << 60

// amount reads a quantity; absent is unknown, negative or above most a fault.
func (p *parser) amount(path *field.Path, q *resource.Quantity) stats.Amount {
	if q == nil {
		return stats.Amount{}
	}
	switch {
	case q.Sign() < 0:
		p.invalid(path, q.String(), "must not be negative")
	case q.CmpInt64(most) > 0:
		p.invalid(path, q.String(), "must not be above 1Ei")
	}
	return stats.Known(q.Value())
}

// signal reads a measurement in either form and faults a percentage threshold
// that it gives no capacity for.
func (p *parser) signal(path *field.Path, s eviction.Signal, raw []byte) (o eviction.Observation, long FileSignal) {
	if short := new(resource.Quantity); raw[0] != '{' {
		if err := short.UnmarshalJSON(raw); err != nil || string(raw) == "null" {
			p.invalid(path, string(raw), "expected a quantity, or available, capacity and age")
			return o, FileSignal{}
		}
		long.Available = short
		if capacity, ok := p.in.Spec.Node.Capacity[nodeCapacity[s.Resource()]]; ok {
			long.Capacity = &capacity
		}
	} else if err := manifest.Decode(raw, &long); err != nil {
		for _, fault := range manifest.Faults(err) {
			p.invalid(path, string(raw), fault.Error())
		}
		return o, FileSignal{}
	}
	if s == eviction.MemoryStall {
		return p.stall(path, &long), long
	}
	if long.Full != nil || long.Some != nil || long.ReadBack != nil {
		p.invalid(path, string(raw), "full, some and readBack are of memory.stall")
	}
	if long.Available == nil {
		p.faults = append(p.faults, field.Required(path.Child("available"), ""))
	}
	if long.Age.Duration < 0 {
		p.invalid(path.Child("age"), long.Age.Duration.String(), "must not be negative")
	}
	o.Available, o.PerSecond = p.amount(path.Child("available"), long.Available), long.PerSecond
	o.Capacity = p.amount(path.Child("capacity"), long.Capacity)
	if long.UsedUpIn != nil {
		o.UsedUpIn = stats.Known(int64(long.UsedUpIn.Duration))
	}
	if !o.Capacity.IsKnown() && slices.ContainsFunc(p.out.config.Thresholds, func(t eviction.Threshold) bool {
		return t.Signal == s && (t.Value.Fraction != 0 || t.MinReclaim.Fraction != 0)
	}) {
		p.faults = append(p.faults, field.Required(path.Child("capacity"), "the threshold of "+s.String()+" is a percentage"))
	}
	return o, long
}

// stall reads a measurement of memory.stall.
func (p *parser) stall(path *field.Path, in *FileSignal) eviction.Observation {
	if in.Full == nil || in.Available != nil || in.Capacity != nil {
		p.invalid(path, "memory.stall", "expected full, some and readBack, as in {full: 40%, some: 60%, readBack: 5Mi}")
	}
	return eviction.Observation{
		Available: stats.Known(stats.WholeTime).Minus(share(in.Full)), Capacity: stats.Known(stats.WholeTime),
		Some: share(in.Some), ReadBack: p.amount(path.Child("readBack"), in.ReadBack), PerSecond: in.PerSecond,
	}
}

// share is unknown where it is absent.
func share(s *eviction.Share) stats.Amount {
	if s == nil {
		return stats.Amount{}
	}
	return stats.Known(int64(*s))
}

// nodeCapacity names the node's resource that a plain quantity of a signal is
// measured against; filesystems have none.
var nodeCapacity = map[v1.ResourceName]v1.ResourceName{
	v1.ResourceMemory:     v1.ResourceMemory,
	eviction.ResourcePIDs: "pid",
	eviction.ResourceSwap: "swap",
}

// usage lays a pod's figures out in the order of its manifest.
func (p *parser) usage(path *field.Path, pod *eviction.Pod, in *FileUsage) usage {
	if in == nil {
		return usage{}
	}
	volume := func(path *field.Path, v FileVolumeUsage) stats.Volume {
		return stats.Volume{Used: p.amount(path.Child("used"), v.Used), Inodes: p.amount(path.Child("inodes"), v.Inodes), Elsewhere: v.Elsewhere}
	}
	u := &stats.Pod{
		Memory:     p.amount(path.Child("memory"), in.Memory),
		Swap:       p.amount(path.Child("swap"), in.Swap),
		Processes:  p.amount(path.Child("pids"), in.PIDs),
		Threads:    p.amount(path.Child("threads"), in.Threads),
		Files:      volume(path.Child("files"), in.Files),
		Unlinked:   volume(path.Child("unlinked"), in.Unlinked),
		Own:        volume(path.Child("own"), in.Own),
		Partial:    in.Partial,
		Containers: make([]stats.Container, len(pod.Containers)),
		Volumes:    make([]stats.Volume, len(pod.Volumes)),
	}
	for _, name := range slices.Sorted(maps.Keys(in.Containers)) {
		c, at := in.Containers[name], path.Child("containers").Key(name)
		i := slices.IndexFunc(pod.Containers, func(c eviction.Container) bool { return c.Name == name })
		if i < 0 {
			p.faults = append(p.faults, field.NotFound(at, name))
			continue
		}
		u.Containers[i] = stats.Container{
			Memory:       p.amount(at.Child("memory"), c.Memory),
			Growth:       c.Growth,
			Rootfs:       p.amount(at.Child("rootfs"), c.Rootfs),
			RootfsInodes: p.amount(at.Child("rootfsInodes"), c.RootfsInodes),
			Logs:         p.amount(at.Child("logs"), c.Logs),
			LogsInodes:   p.amount(at.Child("logsInodes"), c.LogsInodes),

			LogsElsewhere: c.LogsElsewhere,
		}
		if in.Memory == nil {
			u.Memory = stats.Sum(u.Memory, u.Containers[i].Memory)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Volumes)) {
		v, at := in.Volumes[name], path.Child("volumes").Key(name)
		i := slices.IndexFunc(pod.Volumes, func(v eviction.Volume) bool { return v.Name == name })
		if i < 0 {
			p.faults = append(p.faults, field.NotFound(at, name))
			continue
		}
		u.Volumes[i] = volume(at, v)
	}
	return usage{u, in.Growth, p.amount(path.Child("readBack"), in.ReadBack).Or(0), share(in.Stalled)}
}
