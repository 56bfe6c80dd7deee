package nodestatus

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
)

// Status is the document at /v1/status. Amounts are resource quantities.
type Status struct {
	Node       string              `json:"node"`
	Mode       Mode                `json:"mode"`
	Time       Time                `json:"time"`
	PID        int                 `json:"pid,omitempty"`      // of evictd, in its own PID namespace
	StateDir   string              `json:"stateDir,omitempty"` // of evictd, absolute
	Signals    []SignalStatus      `json:"signals"`
	Conditions []ConditionStatus   `json:"conditions"`
	Taints     []string            `json:"taints"`  // key:effect, sorted
	Ranking    map[string][]Ranked `json:"ranking"` // by signal, in the order of eviction
	Evictions  []Eviction          `json:"evictions"`
	// DryRun says that this evictd neither evicts nor writes conditions and taints: Conditions, Taints and Evictions are empty.
	DryRun bool `json:"dryRun,omitempty"`
	// Unprotected says why no pod can be evicted; empty if one can, or no pod is known.
	Unprotected string `json:"unprotected,omitempty"`
	// ConfigurationRefused has the faults of the configuration file if an earlier one is in use.
	ConfigurationRefused string `json:"configurationRefused,omitempty"`
	// WouldBe is nil unless DryRun is true.
	WouldBe *WouldBe `json:"wouldBe,omitempty"`
	// MemoryAvailable is memory.available as each memory model counts it.
	MemoryAvailable map[string]string `json:"memoryAvailable,omitempty"`
	// Stalls are by resource: memory, io, cpu; without PSI there are none.
	Stalls map[string]Stall `json:"stalls,omitempty"`
	// API is nil without an API server.
	API *API `json:"api,omitempty"`
	// Runtime is nil without a container runtime.
	Runtime *Runtime `json:"runtime,omitempty"`
	// Reclaimable is what would be removed from a disk under pressure before a pod is
	// evicted, in order; Unreclaimable are the images and dead containers that are
	// kept.
	Reclaimable   []Reclaimable `json:"reclaimable,omitempty"`
	Unreclaimable []Reclaimable `json:"unreclaimable,omitempty"`
	// Reclaiming are the running reclaims.
	Reclaiming []Reclaiming `json:"reclaiming,omitempty"`
	// KernelKills are the last OOM kills of the kernel, oldest first.
	KernelKills []KernelKill `json:"kernelKills,omitempty"`
	// Growing is a pod whose memory grows.
	Growing *Growing `json:"growing,omitempty"`
	// Outside are the shortages that are not those of the pods.
	Outside []Outside `json:"outside,omitempty"`
	// Steps are those before evictions that are in effect.
	Steps []StepInEffect `json:"steps,omitempty"`
}

// WouldBe is what an evictd in dry run would have written and done.
type WouldBe struct {
	Conditions []ConditionStatus `json:"conditions"`
	Taints     []string          `json:"taints"`
	// Evictions are the last candidates, oldest first, each once for a time in which its threshold was met.
	Evictions []Eviction `json:"evictions"`
}

// Stall is for how many seconds some tasks, or all, have waited for a resource (PSI).
type Stall struct {
	Some float64 `json:"some"`
	Full float64 `json:"full"`
}

// KernelKill is the OOM kills of the kernel in one pod, for one limit, within a minute
// of each other. Process, PID and Memory are those of the last; they are left out where
// the kernel's log does not have them.
type KernelKill struct {
	Time      Time      `json:"time"`          // of the last
	Pod       string    `json:"pod,omitempty"` // namespace/name; left out for a process outside pods
	UID       types.UID `json:"uid,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"`
	Limit     string    `json:"limit"` // the limit reached: node, pods, pod, other or unknown
	Process   string    `json:"process,omitempty"`
	PID       int       `json:"pid,omitempty"`
	Memory    string    `json:"memory,omitempty"` // resident
	Processes int64     `json:"processes"`
}

// Growing is a pod that grows.
type Growing struct {
	Pod       string    `json:"pod"` // namespace/name
	UID       types.UID `json:"uid"`
	PerSecond string    `json:"perSecond"` // memory
}

// MarshalJSON writes empty lists and maps as [] or {}, never as null.
func (s Status) MarshalJSON() ([]byte, error) {
	type document Status
	doc := document(s)
	doc.Signals = orEmpty(slices.Clone(s.Signals))
	for i := range doc.Signals {
		doc.Signals[i].Thresholds = orEmpty(doc.Signals[i].Thresholds)
	}
	doc.Conditions = orEmpty(s.Conditions)
	doc.Taints = orEmpty(s.Taints)
	doc.Ranking = make(map[string][]Ranked, len(s.Ranking))
	for signal, ranked := range s.Ranking {
		doc.Ranking[signal] = orEmpty(ranked)
	}
	doc.Evictions = orEmpty(s.Evictions)
	return json.Marshal(doc)
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// SignalStatus is a signal and its thresholds. Values that were not measured or
// forecast are left out.
type SignalStatus struct {
	Name               string            `json:"name"`
	Available          string            `json:"available,omitempty"`
	Capacity           string            `json:"capacity,omitempty"`
	Age                metav1.Duration   `json:"age"`
	Source             string            `json:"source"` // what triggered the pass
	SecondsToThreshold *float64          `json:"secondsToThreshold,omitempty"`
	Thresholds         []ThresholdStatus `json:"thresholds"`
	// Unmeasured is why nothing is evicted for the thresholds; empty if they can be evaluated.
	Unmeasured string `json:"unmeasured,omitempty"`
}

// ThresholdStatus is a threshold as an amount.
type ThresholdStatus struct {
	Kind     string `json:"kind"` // hard or soft
	Quantity string `json:"quantity"`
	Met      bool   `json:"met"`
}

// ConditionStatus is a node condition.
type ConditionStatus struct {
	Type               v1.NodeConditionType `json:"type"`
	Status             v1.ConditionStatus   `json:"status"`
	Reason             string               `json:"reason"`
	LastTransitionTime Time                 `json:"lastTransitionTime"`
}

// Ranked is a pod in the order of eviction for one signal, with the figures that are
// compared.
type Ranked struct {
	Pod       string         `json:"pod"` // namespace/name
	UID       types.UID      `json:"uid"`
	QOSClass  v1.PodQOSClass `json:"qosClass"`
	Priority  int32          `json:"priority"`
	Usage     string         `json:"usage"`
	Request   string         `json:"request"`
	Exceeds   bool           `json:"exceeds"`
	Protected string         `json:"protected"` // why the pod is never evicted; "" where it may be
	WouldFree string         `json:"wouldFree"`
	Because   string         `json:"because,omitempty"` // why it is evicted before the next
	// Estimated says that class and request were inferred from the container runtime.
	Estimated bool `json:"estimated,omitempty"`
}

// RankedPods converts the ranking of a signal.
func RankedPods(signal eviction.Signal, order []eviction.Ranked) []Ranked {
	signal = signal.OfPods()
	rows := make([]Ranked, 0, len(order))
	for i := range order {
		r := &order[i]
		row := Ranked{
			Pod: r.Pod.String(), UID: r.Pod.UID, QOSClass: r.Pod.QOS, Priority: r.Pod.Priority,
			Request: signal.Quantity(r.Request), Exceeds: r.Exceeds, Protected: r.Exempt(), Estimated: r.Pod.Estimated,
		}
		if r.Measured {
			row.Usage = signal.Quantity(r.Usage)
		}
		if frees, known := r.WouldFree.Get(); known {
			row.WouldFree = signal.Quantity(frees)
		}
		if i+1 < len(order) {
			row.Because = r.Before(&order[i+1])
		}
		rows = append(rows, row)
	}
	return rows
}

// Eviction is one eviction and its times so far.
type Eviction struct {
	Pod       string    `json:"pod"`
	UID       types.UID `json:"uid"`
	Signal    string    `json:"signal"`
	Crossed   Time      `json:"crossed,omitzero"`   // the signal was first observed below the threshold
	Decided   Time      `json:"decided,omitzero"`   // the core chose the pod
	Signalled Time      `json:"signalled,omitzero"` // first signal sent to its processes
	Gone      Time      `json:"gone,omitzero"`      // no process was left
	Freed     string    `json:"freed"`              // memory; "" while not measured, and of a victim of a disk
	Held      string    `json:"held,omitempty"`     // of the signal's disk, when the pod was chosen
	Source    string    `json:"source"`             // what triggered the pass
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Because   string    `json:"because,omitempty"`   // why it was evicted before the next
	Estimated bool      `json:"estimated,omitempty"` // as of Ranked
	Grace     string    `json:"grace,omitempty"`     // from Decided to SIGKILL; a later pass may shorten it
	Killed    Time      `json:"killed,omitzero"`     // SIGKILL sent to its processes
}

// Time is an instant that is written in RFC 3339 with microseconds, in UTC.
type Time struct{ time.Time }

// MarshalText writes the instant.
func (t Time) MarshalText() ([]byte, error) {
	return t.UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000Z07:00"), nil
}

// MarshalJSON writes the instant as a string.
func (t Time) MarshalJSON() ([]byte, error) {
	text, err := t.MarshalText()
	return slices.Concat([]byte{'"'}, text, []byte{'"'}), err
}

// StatusOf converts conditions for the status document.
func StatusOf(conditions []v1.NodeCondition) []ConditionStatus {
	var all []ConditionStatus
	for _, c := range conditions {
		all = append(all, ConditionStatus{c.Type, c.Status, c.Reason, Time{c.LastTransitionTime.Time}})
	}
	return all
}

// TaintNames writes taints as key:effect, sorted.
func TaintNames(taints []v1.Taint) []string {
	var names []string
	for _, t := range taints {
		names = append(names, t.ToString())
	}
	slices.Sort(names)
	return names
}

// Reclaimable is a dead container, a sandbox or an image, and why it is removed or
// kept. WouldFree is left out where it is not known.
type Reclaimable struct {
	Kind            string    `json:"kind"` // container, sandbox or image
	ID              string    `json:"id"`
	Name            string    `json:"name,omitempty"`
	Pod             types.UID `json:"pod,omitempty"`
	Why             string    `json:"why"`
	WouldFree       string    `json:"wouldFree,omitempty"`
	WouldFreeInodes string    `json:"wouldFreeInodes,omitempty"`
}

// Reclaiming is a running reclaim of a disk.
type Reclaiming struct {
	Signal string `json:"signal"`
	Since  Time   `json:"since"`
}
