package daemon

import (
	"encoding/json"
	"log/slog"
	"maps"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/journal"
)

// priorityKind is the journal's kind of the pods' priorities, which are one entry.
const priorityKind = "priorities"

// priorities keeps the priorities of the API server's pods in the journal: after a restart, and
// as long as the API server does not answer, only the container runtime has these pods, and no
// priority of them.
type priorities struct {
	journal *journal.Journal // nil without one
	log     *slog.Logger
	kept    map[types.UID]int32 // without those of 0, which only kube-system's have
}

func newPriorities(from *journal.Journal, log *slog.Logger) *priorities {
	p := &priorities{journal: from, log: log}
	if from == nil {
		return p
	}
	for _, e := range from.Entries(priorityKind) {
		if err := json.Unmarshal(e.Data, &p.kept); err != nil {
			log.Warn("the priorities from before the start cannot be read", "error", err)
		}
	}
	return p
}

// keep keeps those of all pods that the API server has.
func (p *priorities) keep(pods []*v1.Pod) {
	now := map[types.UID]int32{}
	for _, pod := range pods {
		var priority int32
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		if priority != 0 || pod.Namespace == metav1.NamespaceSystem {
			now[pod.UID] = priority
		}
	}
	if maps.Equal(now, p.kept) {
		return
	}
	p.kept = now
	if p.journal == nil {
		return
	}
	if err := p.journal.Put(priorityKind, "pods", now); err != nil {
		p.log.Error("the priorities of pods would not survive a crash", "error", err)
	}
}
