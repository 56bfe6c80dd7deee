package publish

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/nodestatus"
)

// candidates are the pods that a dry run would have evicted, oldest first. The core chooses a candidate again
// and again while its threshold is met, since nothing is killed.
type candidates []*candidate

type candidate struct {
	nodestatus.Eviction
	signal eviction.Signal
	over   bool // its threshold has not been met since
}

// add adds a candidate, and reports whether it is new.
func (c *candidates) add(e nodestatus.Eviction, signal eviction.Signal) bool {
	if slices.ContainsFunc(*c, func(had *candidate) bool { return had.UID == e.UID && had.signal == signal && !had.over }) {
		return false
	}
	*c = append(*c, &candidate{Eviction: e, signal: signal})
	*c = (*c)[max(0, len(*c)-keptEvictions):]
	return true
}

// settle ends the candidates whose threshold is not met any more. Those of a signal without a threshold, which are above
// a limit of their own, end with the pod.
func (c candidates) settle(r *control.Report) {
	if len(c) == 0 {
		return
	}
	has, met, known := map[eviction.Signal]bool{}, map[eviction.Signal]bool{}, map[types.UID]bool{}
	for i := range r.Eviction.Thresholds {
		signal := r.Eviction.Thresholds[i].Signal
		has[signal] = true
		met[signal] = met[signal] || !r.State.Thresholds[i].FirstObserved.IsZero()
	}
	for i := range r.Candidates {
		known[r.Candidates[i].Pod.UID] = true
	}
	for _, had := range c {
		had.over = had.over || len(known) > 0 && !known[had.UID] || has[had.signal] && !met[had.signal]
	}
}

func (c candidates) all() []nodestatus.Eviction {
	all := make([]nodestatus.Eviction, 0, len(c))
	for _, had := range c {
		all = append(all, had.Eviction)
	}
	return all
}
