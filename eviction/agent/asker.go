package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/wire"
)

// Killer ends pods in goroutines of its own.
type Killer interface {
	Kill(kill.Victim) error
	Hasten(uid types.UID, grace time.Duration)
	Results() <-chan kill.Result
}

// glance is how often the deadlines of victims that wait are looked at.
const glance = 100 * time.Millisecond

// Asker is a Killer that asks the Eviction API before it lets a soft victim be
// killed, and so respects disruption budgets until a deadline. Hard victims
// never wait.
type Asker struct {
	Killer
	agent    *Agent
	patience time.Duration
	log      *slog.Logger

	mu      sync.Mutex
	waiting map[types.UID]*waiting
}

// waiting is a victim that has not been let go yet.
type waiting struct {
	kill.Victim
	deadline time.Time
	refused  string // what was answered last
	free     bool   // to be killed, as soon as the killer takes it
}

// NewAsker asks through an agent, for as long as patience.
func NewAsker(killer Killer, agent *Agent, patience time.Duration, log *slog.Logger) *Asker {
	return &Asker{Killer: killer, agent: agent, patience: patience, log: log, waiting: map[types.UID]*waiting{}}
}

// Kill begins to kill a hard victim, and to ask for a soft one; it returns at
// once. The error is that of the Killer below.
func (k *Asker) Kill(v kill.Victim) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !v.Soft {
		delete(k.waiting, v.UID)
		return k.Killer.Kill(v)
	}
	if k.waiting[v.UID] != nil {
		return nil
	}
	w := &waiting{Victim: v, deadline: time.Now().Add(k.patience), refused: "the Eviction API has not answered"}
	k.waiting[v.UID] = w
	k.agent.ask(wire.Ask{UID: v.UID, Pod: v.Name, GraceSeconds: int64(v.Grace / time.Second), Deadline: w.deadline})
	return nil
}

// Hasten is the Killer's below. A victim that waits for leave waits no longer: a
// hard threshold has no time for that.
func (k *Asker) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waiting[uid]
	if w == nil {
		k.Killer.Hasten(uid, grace)
		return
	}
	w.Soft, w.Grace = false, min(w.Grace, grace)
	k.letGo(w)
	if !w.free {
		k.override(w, "A hard threshold was crossed before the Eviction API let it go")
	}
}

// letGo kills a victim as soon as the killer takes it.
func (k *Asker) letGo(w *waiting) {
	if k.Killer.Kill(w.Victim) == nil {
		delete(k.waiting, w.UID)
	}
}

// override has a victim go without leave.
func (k *Asker) override(w *waiting, why string) {
	w.free = true
	k.agent.settle(w.UID, why+": "+w.refused+" ")
	k.log.Warn("a soft victim goes without leave", "pod", w.Name, "because", why, "refused", w.refused)
}

// Run lets victims go as answers come and deadlines pass, until ctx ends.
func (k *Asker) Run(ctx context.Context) error {
	tick := time.NewTicker(glance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case answer := <-k.agent.answers:
			k.hear(answer)
		case <-tick.C:
		}
		k.release(time.Now())
	}
}

func (k *Asker) hear(answer wire.Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waiting[answer.UID]
	switch {
	case w == nil || w.free:
	case answer.Refused == "":
		w.free = true
		k.agent.settle(w.UID, "")
		k.log.Info("the Eviction API lets the pod go", "pod", w.Name)
	default:
		w.refused = answer.Refused
	}
}

// release kills the victims that may go, or have waited for long enough.
func (k *Asker) release(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.waiting {
		if !w.free && now.After(w.deadline) {
			k.override(w, fmt.Sprintf("The Eviction API did not let it go within %v", k.patience))
		}
		if w.free {
			k.letGo(w)
		}
	}
}

// ask begins to ask for a pod.
func (a *Agent) ask(ask wire.Ask) {
	a.tell(func(o *outbox) { o.asks[ask.UID] = &asking{Ask: ask} })
}

// settle ends the asking for a pod; override says why it goes without leave.
func (a *Agent) settle(uid types.UID, override string) {
	a.tell(func(o *outbox) {
		ask := o.asks[uid]
		if ask == nil {
			return
		}
		ask.settled, ask.override = true, override
		for _, t := range o.intents {
			if t.UID == uid && override != "" {
				t.Override, t.told = override, false
				a.remember(t)
			}
		}
	})
}
