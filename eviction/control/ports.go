package control

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// Sensor reads the node-level figures and the time; what it cannot read stays
// unknown. It is called at every pass and must not allocate. The figures of disks
// are those of the call before, and if asked for are measured for the next call.
type Sensor interface {
	Read(n *stats.Node, ask collect.Ask)
}

// Meter reads the figures of one pod; what it cannot read stays unknown. The
// error is fs.ErrNotExist where the pod has ended.
type Meter interface {
	Read(*stats.Pod) error
	// ReadMemory is Read without the processes, and without the containers if not
	// asked for. Once it was called it opens nothing and allocates nothing.
	ReadMemory(s *stats.Pod, containers bool) error
	// ReadStall reads how long the pod's tasks have waited for memory.
	ReadStall() (stats.Stall, error)
}

// Waiter is where the loop sleeps until the kernel or a port wakes it.
type Waiter interface {
	// Wait sleeps until the kernel notifies, Wake is called or d has passed. It names
	// the notification; "" for the other two.
	Wait(d time.Duration) (source string)
	// Wake ends the present Wait, or the next, from any goroutine.
	Wake()
	// SetLevels says where the nearest hard thresholds of memory are. It never blocks,
	// and returns whether the kernel notifies before they are crossed.
	SetLevels(collect.MemoryLevels) collect.Armed
}

// Killer ends pods in goroutines of its own.
type Killer interface {
	Kill(kill.Victim) error
	Hasten(uid types.UID, grace time.Duration)
	// Killed says whether SIGKILL was sent to a pod that is being killed.
	Killed(uid types.UID) bool
	// Ended says whether a pod is known to have no process. It opens nothing where one runs.
	Ended(kill.Target) bool
	Results() <-chan kill.Result
}

// Withdrawer is a Killer that requests evictions before it kills.
type Withdrawer interface {
	// Withdraw withdraws a request that was not granted, and says whether it did. It never waits.
	Withdraw(uid types.UID) bool
}

// Intents keeps evictions where they survive this process. It never waits and allocates nothing.
type Intents interface {
	// Put keeps an eviction, before its first signal.
	Put(*eviction.Eviction, *eviction.InFlight)
	// Withdraw drops one whose kill did not begin.
	Withdraw(*eviction.InFlight)
}

// Pod is a pod of the node as the loop handles it.
type Pod struct {
	*eviction.Pod
	// Arrived: the pod was bound after evictd had listed the pods of the node, and there is no
	// kubelet that could refuse it.
	Arrived bool
	// Meter measures the pod; nil where it cannot be measured.
	Meter Meter
	// Target is what there is to kill; nil where nothing was found: then the pod
	// is never chosen.
	Target kill.Target
	// Usage reads what the pod holds, from any goroutine; nil if unknown.
	Usage func() stats.Amount
	// Container is what there is to kill of a container, by its index, and what reads its usage; nil where no container
	// can be ended alone.
	Container func(i int) (kill.Target, func() stats.Amount)
}

// Reclaimer frees what the node can free without ending a pod, in a goroutine of
// its own.
type Reclaimer interface {
	// Reclaim begins to free what a signal's disk needs, and returns at once.
	Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need)
	// Reclaimed receives the signal when that has ended, with success or without.
	Reclaimed() <-chan eviction.Signal
}

// Steps takes steps before evictions on pods, in goroutines of its own. Those on containers are taken by a reader
// of the reports, once they are kept.
type Steps interface {
	// Take begins a step, or ends it, and returns at once. It leaves steps of other kinds alone.
	Take(*eviction.StepAction)
	// Outcomes receives what has become of them: one outcome of each request to reclaim or to measure; of a
	// throttle one when memory.high is set, or was not, and one when it is what it was before.
	Outcomes() <-chan eviction.StepOutcome
}

// DiskScanner scans what pods hold on disks, in a goroutine of its own.
type DiskScanner interface {
	// Request asks for a new scan and returns at once.
	Request()
	// LastScan is when the last complete scan began; zero before the first.
	LastScan() time.Time
	// Done receives when a scan is complete.
	Done() <-chan struct{}
}

// UnknownPods finds pods that are not in the loop's set.
type UnknownPods interface {
	// UnknownPods says whether processes run in the cgroup of a pod that is none of
	// these. It is called before a pod within its request is evicted.
	UnknownPods(known []Pod) bool
}

// Pulse is how a watchdog sees that the loop runs. It must not block.
type Pulse interface {
	// Heartbeat says that a pass is complete that began at that time.
	Heartbeat(time.Time)
}

// Config of the loop.
type Config struct {
	// Eviction is complete for the layout of the disks (eviction.New).
	Eviction eviction.Config
	// MemoryModel chooses which memory counts as available.
	MemoryModel stats.MemoryModel
	// Processors of the node: each may use up 2 GiB of memory a second. Fewer than three count as
	// three.
	Processors int
	// HousekeepingInterval is the period of the regular pass.
	HousekeepingInterval time.Duration
}

// Source is what caused a pass: one of these, or what Waiter names.
type Source string

// The sources of the loop's own.
const (
	Housekeeping Source = "housekeeping"
	Poll         Source = "poll"
	VictimGone   Source = "victim-gone"
	PodsChanged  Source = "pods-changed"
	DiskScanned  Source = "disk-survey"
	Reclaimed    Source = "reclaimed"
	Reconfigured Source = "reconfigured"
	GraceEnded   Source = "grace-ended"
	PodRestarted Source = "pod-restarted"
	StepTaken    Source = "step-taken"
	Watched      Source = "watched"
)

// numSources is how many there are, with those that Waiter names.
const numSources = 14

// Report is the result of one pass. It is a copy: readers may keep it.
type Report struct {
	At           time.Time
	Source       Source
	Pass         eviction.Pass
	Node         stats.Node
	Observations eviction.Observations
	Forecast     Forecast
	State        eviction.State
	Eviction     *eviction.Config
	Decisions    []eviction.Decision // of the calls of the pass, in order
	// Failed are the victims whose kill could not begin. The evictions of the
	// decisions are the others.
	Failed []eviction.Eviction
	// Reclaims are those that began in the pass, or had ended before it.
	Reclaims []eviction.ReclaimOutcome
	// Resumed are the victims of before the start whose kill has begun again, and
	// NotResumed those whose kill could not.
	Resumed, NotResumed []eviction.Resumed
	// NotRestarted are the restarts that could not begin.
	NotRestarted []eviction.ContainerRestart
	// Withdrawn are the victims whose evictions were withdrawn.
	Withdrawn []types.UID
	// The facts that the pass went by: see eviction.Input. Where Sampled, Exited were
	// candidates before. Repeated says of a signal that the pass before had the
	// same observation.
	Outcomes    []eviction.Outcome
	TasksLeft   []eviction.TasksLeft
	VictimUsage []eviction.VictimUsage
	Restarted   []eviction.Restarted
	Arrived     []types.UID
	// StepOutcomes and Fastest are as of eviction.Input.
	StepOutcomes []eviction.StepOutcome
	Fastest      eviction.Growth
	DiskScans    bool
	ScannedSince time.Time
	UnknownPods  bool
	Candidates   []eviction.Candidate
	Sampled      bool
	Exited       []*eviction.Pod
	Repeated     [eviction.NumSignals]bool
	// Started is the state before the pass in the first report of a loop and of a
	// configuration; nil in the others.
	Started *eviction.State
	// HeldBack is the first eligible pod, which is not evicted for now: see
	// eviction.Decision.
	HeldBack *eviction.Pod
	DryRun   bool
	// Passes counts those since the report before, with this one.
	Passes map[Source]int
	// Lost counts reports that were not received in time, since the start.
	Lost uint64
	// Ended is what became of a kill, in a report of its own that holds no pass.
	Ended *kill.Result
}

// Ports of the loop. Intents, DiskScanner, Reclaimer, Steps, UnknownPods, Pulse and CPUTime may be nil: then an
// eviction survives this process once its report is kept, disk figures are as of each pass, the node has nothing
// to free by itself, no memory is reclaimed from pods and none is throttled, no pod is unknown, and the processor
// time of the loop is not bounded.
type Ports struct {
	Sensor      Sensor
	Waiter      Waiter
	Killer      Killer
	Intents     Intents
	DiskScanner DiskScanner
	Reclaimer   Reclaimer
	Steps       Steps
	UnknownPods UnknownPods
	Pulse       Pulse
	// CPUTime is the processor time that the calling thread has used.
	CPUTime func() time.Duration
}
