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
// unknown. It is called at every pass and must not allocate. Disks are told as
// they were, and if asked for measured for the next call.
type Sensor interface {
	Read(n *stats.Node, disks bool)
}

// Meter reads the figures of one pod; what it cannot read stays unknown. The
// error is fs.ErrNotExist where the pod has ended.
type Meter interface {
	Read(*stats.Pod) error
	// ReadMemory is Read without the processes, and without the containers if not
	// asked for. Once it was called it opens nothing and allocates nothing.
	ReadMemory(s *stats.Pod, containers bool) error
}

// Waiter is where the loop sleeps, and what the kernel wakes it by.
type Waiter interface {
	// Wait sleeps until something rings, Wake is called or d has passed, and
	// names what rang; "" for the other two.
	Wait(d time.Duration) (source string)
	// Wake ends the present Wait, or the next, from any goroutine.
	Wake()
	// SetLevels says where the nearest hard thresholds of memory are. It never blocks,
	// and returns whether the kernel tells when they are crossed.
	SetLevels(collect.MemoryLevels) bool
}

// Killer ends pods in goroutines of its own.
type Killer interface {
	Kill(kill.Victim) error
	Hasten(uid types.UID, grace time.Duration)
	Results() <-chan kill.Result
}

// Pod is a pod of the node as the loop handles it.
type Pod struct {
	*eviction.Pod
	// Meter measures the pod; nil where it cannot be measured.
	Meter Meter
	// Target is what there is to kill; nil where nothing was found: then the pod
	// is never chosen.
	Target kill.Target
	// Usage reads what the pod holds, from any goroutine; nil if unknown.
	Usage func() stats.Amount
}

// Reclaimer frees what the node can free without ending a pod, in a goroutine of
// its own.
type Reclaimer interface {
	// Reclaim begins to free what a signal's disk needs, and returns at once.
	Reclaim(s eviction.Signal, steps []eviction.ReclaimStep, need eviction.Need)
	// Reclaimed receives the signal when that has ended, whatever came of it.
	Reclaimed() <-chan eviction.Signal
}

// Survey measures what pods hold on disks, in a goroutine of its own.
type Survey interface {
	// Request asks for a new round and returns at once.
	Request()
	// LastScan is when the last complete round began.
	LastScan() time.Time
	// Done receives when a round is complete.
	Done() <-chan struct{}
}

// Census knows of pods that the loop was not told of.
type Census interface {
	// Strangers says whether processes run in the place of a pod that is none of
	// these. It is asked before a pod within its request goes.
	Strangers([]Pod) bool
}

// Pulse is felt by whoever watches over the loop. It must not wait.
type Pulse interface {
	// Heartbeat tells that a pass is complete that began at that time.
	Heartbeat(time.Time)
}

// Config of the loop.
type Config struct {
	// Eviction is complete for the layout of the disks (eviction.New).
	Eviction eviction.Config
	// MemoryModel chooses which memory counts as available.
	MemoryModel stats.MemoryModel
	// HousekeepingInterval is the period of the regular pass.
	HousekeepingInterval time.Duration
	// HardGrace is what victims of hard thresholds are given, from zero to the
	// one second that is announced; less where the signal would run out.
	HardGrace time.Duration
	// SoftPatience is for how long the killer may wait before it begins with a
	// soft victim, which counts as in flight meanwhile.
	SoftPatience time.Duration
	// DryRun decides and reports, and touches nothing.
	DryRun bool
}

// Source says what woke the loop for a pass: one of these, or what the Waiter
// calls it.
type Source string

// The sources of the loop's own.
const (
	Housekeeping Source = "housekeeping"
	Poll         Source = "poll"
	VictimGone   Source = "victim-gone"
	PodsChanged  Source = "pods-changed"
	DiskSurvey   Source = "disk-survey"
	Reclaimed    Source = "reclaimed"
	Reconfigured Source = "reconfigured"
)

// Report is what one pass came to. It is a copy: readers may keep it.
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
	// Resumed are the victims of before the start whose pods have been set.
	Resumed []Resumed
	// HeldBack is the pod whose turn it is, and which stays for now: see
	// eviction.Decision.
	HeldBack *eviction.Pod
	DryRun   bool
	// Lost counts reports that nobody took in time, since the start.
	Lost uint64
	// Ended is what became of a kill, in a report of its own that holds no pass.
	Ended *kill.Result
}

// Ports of the loop. Survey, Reclaimer, Census and Pulse may be nil: then disk
// figures are taken as they come, the node has nothing to free by itself, there are
// no pods but those that were set, and nobody watches.
type Ports struct {
	Sensor    Sensor
	Waiter    Waiter
	Killer    Killer
	Survey    Survey
	Reclaimer Reclaimer
	Census    Census
	Pulse     Pulse
}
