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
	Signals    []SignalStatus      `json:"signals"`
	Conditions []ConditionStatus   `json:"conditions"`
	Taints     []string            `json:"taints"`  // key:effect, sorted
	Ranking    map[string][]Ranked `json:"ranking"` // by signal, who would go first first
	Evictions  []Eviction          `json:"evictions"`
	// MemoryAvailable is memory.available as each memory model counts it.
	MemoryAvailable map[string]string `json:"memoryAvailable,omitempty"`
	// Stalls are by resource: memory, io, cpu; those that the kernel tells of.
	Stalls map[string]Stall `json:"stalls,omitempty"`
	// API is nil where the daemon speaks to no API server.
	API *API `json:"api,omitempty"`
	// Runtime is nil where the daemon uses no container runtime.
	Runtime *Runtime `json:"runtime,omitempty"`
	// Reclaimable is what a disk under pressure would lose before a pod went, in
	// that order; Unreclaimable are the images and dead containers that stay.
	Reclaimable   []Reclaimable `json:"reclaimable,omitempty"`
	Unreclaimable []Reclaimable `json:"unreclaimable,omitempty"`
	// Reclaiming are the disks that are being freed so.
	Reclaiming []Reclaiming `json:"reclaiming,omitempty"`
	// KernelKills are the last that the kernel has killed for want of memory, oldest
	// first.
	KernelKills []KernelKill `json:"kernelKills,omitempty"`
	// Growing is the pod whose memory grows fastest; nil where none grows.
	Growing *Growing `json:"growing,omitempty"`
}

// Stall is for how many seconds so far some tasks, or all, waited for a resource
// (PSI).
type Stall struct {
	Some float64 `json:"some"`
	Full float64 `json:"full"`
}

// KernelKill is what the kernel has killed for want of memory: in a pod, of one
// limit, within a minute of each other. Process, PID and Memory are those of the
// last of them, left out where the kernel did not say.
type KernelKill struct {
	Time      Time      `json:"time"`          // of the last
	Pod       string    `json:"pod,omitempty"` // namespace/name; left out of a process that is in no pod
	UID       types.UID `json:"uid,omitempty"`
	Cgroup    string    `json:"cgroup,omitempty"`
	Limit     string    `json:"limit"` // that was reached: of the node, pods, pod, other or unknown
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

// MarshalJSON writes what is empty as [] or {}, never as null.
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

// SignalStatus is a signal and its thresholds. What was not measured, or not
// forecast, is left out.
type SignalStatus struct {
	Name               string            `json:"name"`
	Available          string            `json:"available,omitempty"`
	Capacity           string            `json:"capacity,omitempty"`
	Age                metav1.Duration   `json:"age"`
	Source             string            `json:"source"` // what brought the observation about
	SecondsToThreshold *float64          `json:"secondsToThreshold,omitempty"`
	Thresholds         []ThresholdStatus `json:"thresholds"`
}

// ThresholdStatus is a threshold by its resolved amount.
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

// Ranked is a pod's place in the order of eviction for one signal, and the
// figures that gave it the place.
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
	Because   string         `json:"because,omitempty"` // why it goes before the next
	// Estimated: class and request were inferred from what the container runtime
	// tells.
	Estimated bool `json:"estimated,omitempty"`
}

// RankedPods are a signal's ranking for people and programs.
func RankedPods(signal eviction.Signal, order []eviction.Ranked) []Ranked {
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

// Eviction is what became of one victim. The times that have not come are left
// out.
type Eviction struct {
	Pod       string    `json:"pod"`
	UID       types.UID `json:"uid"`
	Signal    string    `json:"signal"`
	Crossed   Time      `json:"crossed,omitzero"`   // the daemon first saw the signal below the threshold
	Decided   Time      `json:"decided,omitzero"`   // the core chose the pod
	Signalled Time      `json:"signalled,omitzero"` // its processes were first told to end
	Gone      Time      `json:"gone,omitzero"`      // none of them was left
	Freed     string    `json:"freed"`              // "" while not measured
	Source    string    `json:"source"`             // what brought the observation about
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Because   string    `json:"because,omitempty"`   // why it went before the next
	Estimated bool      `json:"estimated,omitempty"` // as of Ranked
	Grace     string    `json:"grace,omitempty"`     // from then to SIGKILL, as decided: a pass that finds less time shortens it
	Killed    Time      `json:"killed,omitzero"`     // they were sent SIGKILL
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

// StatusOf writes conditions as the status document shows them.
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

// Reclaimable is a dead container, a sandbox or an image, and why it would go or
// stays. What it would free is left out where it is not known.
type Reclaimable struct {
	Kind            string    `json:"kind"` // container, sandbox or image
	ID              string    `json:"id"`
	Name            string    `json:"name,omitempty"`
	Pod             types.UID `json:"pod,omitempty"`
	Why             string    `json:"why"`
	WouldFree       string    `json:"wouldFree,omitempty"`
	WouldFreeInodes string    `json:"wouldFreeInodes,omitempty"`
}

// Reclaiming is a disk that the node frees by itself.
type Reclaiming struct {
	Signal string `json:"signal"`
	Since  Time   `json:"since"`
}
