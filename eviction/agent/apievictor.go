package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math"
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
	Killed(uid types.UID) bool
	Ended(kill.Target) bool
	Results() <-chan kill.Result
}

const (
	// deadlineCheck is how often the deadlines of waiting victims are checked.
	deadlineCheck = 100 * time.Millisecond
	// DeletionPatience is how long the API server may take to delete a pod.
	DeletionPatience = 5 * time.Second
	// hookAllowance is what a kubelet grants a pod whose preStop hooks have used up its
	// grace (minimumGracePeriodInSeconds).
	hookAllowance = 2 * time.Second
)

// APIEvictor is a Killer that requests the eviction of a soft victim from the Eviction API
// (pods/eviction), or by an EvictionRequest, before it kills the victim. Until a deadline this respects disruption
// budgets. Beside a kubelet a victim whose budget still holds it back is deleted then, and
// the kubelet, which runs preStop hooks, ends the pods that the API server has evicted or
// deleted: the Killer kills what is left after the grace. Hard victims never wait.
type APIEvictor struct {
	Killer
	agent *Agent
	cfg   SoftEviction
	log   *slog.Logger

	mu      sync.Mutex
	waiting map[types.UID]*waiting
}

// waiting is a victim whose eviction the API has not granted.
type waiting struct {
	kill.Victim
	deadline time.Time
	refused  string // the last answer
	deleted  bool   // its deletion is requested
	granted  bool   // it is killed as soon as the killer accepts it
}

// SoftEviction is how soft victims are evicted.
type SoftEviction struct {
	// Patience is from Kill to the deadline.
	Patience time.Duration
	// Kubelet: one runs the pods.
	Kubelet bool
	// Direct has victims deleted, without a request to the Eviction API.
	Direct bool
	// Object has EvictionRequests of lifecycle.k8s.io made in place of requests to the Eviction API.
	Object bool
}

// NewAPIEvictor sends requests by an agent.
func NewAPIEvictor(killer Killer, agent *Agent, cfg SoftEviction, log *slog.Logger) *APIEvictor {
	return &APIEvictor{Killer: killer, agent: agent, cfg: cfg, log: log, waiting: map[types.UID]*waiting{}}
}

// Kill starts to kill a hard victim, or to request the eviction of a soft one, and returns
// at once. The error is that of the Killer below.
func (k *APIEvictor) Kill(v kill.Victim) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	waits := k.waiting[v.UID] != nil
	if !v.Soft || v.Container != "" { // the pod of a container stays
		if waits {
			delete(k.waiting, v.UID)
			k.agent.withdraw(v.UID)
		}
		return k.Killer.Kill(v)
	}
	if waits {
		return nil
	}
	w := &waiting{Victim: v, deadline: time.Now().Add(k.cfg.Patience), refused: "the API server has not answered", deleted: k.cfg.Direct}
	k.waiting[v.UID] = w
	k.request(w)
	return nil
}

// request asks for a deletion with the grace in whole seconds, at least one: with a grace of 0 the API server deletes
// the Pod at once, while its processes still run.
func (k *APIEvictor) request(w *waiting) {
	k.agent.requestEviction(wire.EvictionRequest{
		UID: w.UID, Pod: w.Name, GraceSeconds: max(1, int64(math.Ceil(w.Grace.Seconds()))), Deadline: wire.Instant{Time: w.deadline}, Delete: w.deleted,
		Object: k.cfg.Object && !w.deleted,
	})
}

// Withdraw implements control.Withdrawer: a victim whose eviction is not granted is withdrawn.
func (k *APIEvictor) Withdraw(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waiting[uid]
	if w == nil || w.granted || w.deleted || !k.cfg.Object {
		return false
	}
	delete(k.waiting, uid)
	k.agent.requestEviction(wire.EvictionRequest{UID: uid, Pod: w.Name, Object: true, Withdrawn: true})
	return true
}

// Hasten shortens the grace of a pod that is being killed. A waiting victim is killed now, once
// the reason is kept: a hard threshold is crossed.
func (k *APIEvictor) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waiting[uid]
	if w == nil {
		k.Killer.Hasten(uid, grace)
		return
	}
	w.Soft, w.Grace = false, min(w.Grace, grace)
	if !w.granted {
		w.granted = true
		k.override(w, "A hard threshold was crossed before the Eviction API granted the eviction")
	}
	k.kill(w)
}

// kill starts to kill a victim. Where the killer is full, the next tick tries again.
func (k *APIEvictor) kill(w *waiting) {
	if k.Killer.Kill(w.Victim) == nil {
		delete(k.waiting, w.UID)
	}
}

// override keeps why a victim is evicted although the API has not granted that.
func (k *APIEvictor) override(w *waiting, why string) {
	k.agent.withdraw(w.UID)
	k.agent.evictions.Override(w.UID, why+": "+w.refused+" ")
	k.log.Warn("a soft victim is evicted without the Eviction API", "pod", w.Name, "because", why, "refused", w.refused)
}

// Run kills victims as answers arrive and deadlines pass, until ctx ends.
func (k *APIEvictor) Run(ctx context.Context) error {
	tick := time.NewTicker(deadlineCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case answer := <-k.agent.answers:
			k.handle(answer)
		case <-tick.C:
		}
		k.release(time.Now())
	}
}

func (k *APIEvictor) handle(answer wire.EvictionResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.waiting[answer.UID]
	switch {
	case w == nil: // the eviction is withdrawn
		k.agent.withdraw(answer.UID)
	case w.granted:
	case answer.Refused == "":
		w.granted = true
		k.agent.withdraw(w.UID)
		k.agent.evictions.Granted(w.UID)
		k.log.Info("the API server has granted the eviction", "pod", w.Name, "deleted", w.deleted)
		if k.cfg.Kubelet {
			w.Grace += hookAllowance
			w.Elsewhere = make(chan struct{}) // never closed: the kubelet stops the pod
		}
	default:
		w.refused = answer.Refused
	}
}

// release kills the victims whose eviction is granted or whose deadline has passed.
func (k *APIEvictor) release(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.waiting {
		if !w.granted && now.After(w.deadline) {
			k.expire(w, now)
		}
		if w.granted {
			k.kill(w)
		}
	}
}

// expire evicts a victim whose deadline has passed without the Eviction API. Beside a
// kubelet it is deleted first.
func (k *APIEvictor) expire(w *waiting, now time.Time) {
	if w.granted = w.deleted || !k.cfg.Kubelet; w.granted && w.deleted {
		k.override(w, fmt.Sprintf("The API server did not delete the pod within %v", DeletionPatience))
		return
	}
	k.override(w, fmt.Sprintf("The Eviction API did not grant the eviction within %v", k.cfg.Patience))
	if !w.granted {
		w.deleted, w.deadline = true, now.Add(DeletionPatience)
		k.request(w)
	}
}

// requestEviction requests the eviction of a pod until withdraw.
func (a *Agent) requestEviction(ask wire.EvictionRequest) {
	a.update(func(o *outbox) { o.requests[ask.UID] = &request{EvictionRequest: ask} })
}

// WithdrawEvictions withdraws the EvictionRequests of victims of an earlier process: their pods are ranked again.
func (a *Agent) WithdrawEvictions(victims []wire.Intent) {
	for i := range victims {
		v := &victims[i]
		a.requestEviction(wire.EvictionRequest{UID: v.UID, Pod: v.Namespace + "/" + v.Name, Object: true, Withdrawn: true})
	}
}

// forgetWithdrawn ends a withdrawal that is done. The pod may have been chosen again.
func (a *Agent) forgetWithdrawn(uid types.UID) {
	a.update(func(o *outbox) {
		if r := o.requests[uid]; r != nil && r.Withdrawn {
			delete(o.requests, uid)
		}
	})
}

// withdraw ends the requests for a pod.
func (a *Agent) withdraw(uid types.UID) {
	a.update(func(o *outbox) { delete(o.requests, uid) })
}
