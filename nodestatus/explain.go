package nodestatus

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
)

// Explanation is the document at /v1/explain: the forecast for each signal if one of
// its thresholds was met now. Amounts are resource quantities.
type Explanation struct {
	Node   string `json:"node"`
	Time   Time   `json:"time"`
	DryRun bool   `json:"dryRun,omitempty"` // no pod is killed
	// Unprotected says why no pod can be evicted; empty if one can, or no pod is known.
	Unprotected string           `json:"unprotected,omitempty"`
	Signals     []SignalForecast `json:"signals"`
	Limits      []PodLimit       `json:"limits"` // local-storage limits of pods, where they are enforced
	Steps       []StepInEffect   `json:"steps,omitempty"`
	// Prospects are those of the steps before evictions on the selected pod; none where all pods are.
	Prospects []Prospect `json:"prospects,omitempty"`
}

// SignalForecast is the forecast for the met threshold of a signal, or for its next
// threshold.
type SignalForecast struct {
	Signal    string `json:"signal"`
	Kind      string `json:"kind"` // hard or soft
	Required  string `json:"required"`
	Available string `json:"available"`
	// Assumed says that the signal is not below the threshold, and that one unit
	// below is assumed.
	Assumed bool `json:"assumed"`
	// Lacking is the amount to free, minimum reclaim included.
	Lacking string `json:"lacking"`
	// Reclaim is what is removed before a pod is evicted: containers, images.
	Reclaim []string `json:"reclaim,omitempty"`
	// Victims are the pods to be evicted, in order, namespace/name. Freed is the sum of
	// their usage; it is left out where that is not known.
	Victims  []string `json:"victims"`
	Freed    string   `json:"freed,omitempty"`
	Suffices bool     `json:"suffices"`
	// Awaited are pods in flight for the same resource.
	Awaited []string `json:"awaited,omitempty"`
	// OneByOne says that a pass evicts one pod and measures again.
	OneByOne bool           `json:"oneByOne"`
	Order    []ExplainedPod `json:"order"`
}

// ExplainedPod is a pod's rank in the order of eviction, with the reasons.
type ExplainedPod struct {
	Ranked
	Place int `json:"place"` // from 1
	// Goes says whether the pod is one of the victims.
	Goes bool `json:"goes"`
	// Against is the next pod in the order. Comparisons are the keys that are compared,
	// up to the deciding one.
	Against     string       `json:"against,omitempty"`
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Rival is the pod at the border between victims and others. Changes are those
	// that, each by itself, move the pod to the other side of it.
	Rival   string   `json:"rival,omitempty"`
	Changes []Change `json:"changes,omitempty"`
}

// Comparison is one key of the ranking and its values for the two pods.
type Comparison struct {
	Key     string `json:"key"`
	This    string `json:"this"`
	Other   string `json:"other"`
	Decides bool   `json:"decides"`
}

// Change is a change of one figure of a pod: usage, request or priority.
type Change struct {
	Of   string `json:"of"`
	From string `json:"from"`
	To   string `json:"to"`
}

// PodLimit is a local-storage limit of a pod. A pod above it is evicted whatever is
// available on the node.
type PodLimit struct {
	Pod    string `json:"pod"`
	Signal string `json:"signal"`
	Of     string `json:"of,omitempty"` // the volume or the container
	Held   string `json:"held"`
	Limit  string `json:"limit"`
	Over   bool   `json:"over"`
}

// NewSignalForecast converts a forecast. name returns the namespace/name of a pod by
// its uid.
func NewSignalForecast(f *eviction.Prediction, name func(types.UID) string) SignalForecast {
	quantity, ofPods := f.Signal.Quantity, f.Signal.OfPods().Quantity
	s := SignalForecast{
		Signal: f.Signal.String(), Kind: f.Kind(), Required: quantity(f.Required), Available: quantity(f.Available),
		Assumed: f.Assumed, Lacking: ofPods(max(0, f.Lacking)), Suffices: f.Suffices(), Victims: []string{}, Order: []ExplainedPod{},
	}
	for _, step := range f.Reclaim {
		s.Reclaim = append(s.Reclaim, step.String())
	}
	for _, uid := range f.Victims {
		s.Victims = append(s.Victims, name(uid))
	}
	for _, uid := range f.Awaited {
		s.Awaited = append(s.Awaited, name(uid))
	}
	if freed, known := f.Freed.Get(); known {
		s.Freed = ofPods(freed)
	}
	for i, row := range RankedPods(f.Signal, f.Ranking) {
		s.Order = append(s.Order, place(f, i, row))
	}
	return s
}

func place(f *eviction.Prediction, i int, row Ranked) ExplainedPod {
	r := &f.Ranking[i]
	p := ExplainedPod{Ranked: row, Place: i + 1, Goes: slices.Contains(f.Victims, r.Pod.UID)}
	if i+1 < len(f.Ranking) {
		next := &f.Ranking[i+1]
		p.Against = next.Pod.String()
		for _, c := range r.Compare(next) {
			p.Comparisons = append(p.Comparisons, Comparison{c.Key, c.This, c.Next, c.Decides})
		}
	}
	rival := f.Rival(i)
	if rival == nil {
		return p
	}
	p.Rival = rival.Pod.String()
	write := func(of string, amount int64) string {
		if of == "priority" {
			return strconv.FormatInt(amount, 10)
		}
		return f.Signal.OfPods().Quantity(amount)
	}
	for _, c := range r.Passing(rival) {
		p.Changes = append(p.Changes, Change{c.Of, write(c.Of, c.From), write(c.Of, c.To)})
	}
	return p
}
