package checkpoint

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
)

const (
	// evictionKind is the journal's kind of evictions.
	evictionKind = "intent"
	// maxEvictions bounds them: the oldest is dropped.
	maxEvictions = 512
)

// record is an eviction in the journal. Earlier versions wrote the Intent alone.
type record struct {
	wire.Intent
	// InFlight is the victim as of At; nil where it is not in flight any more.
	InFlight *eviction.KeptVictim `json:"inFlight,omitempty"`
	At       osprocess.Instant    `json:"at,omitzero"`
	// Reported: nothing of it is to be sent to the API server.
	Reported bool `json:"reported,omitempty"`
	// Granted: the Eviction API has granted it.
	Granted bool `json:"granted,omitempty"`

	written eviction.InFlight // that InFlight was made of
	sent    bool              // the agent has the newest state
	// pending: the journal may not have it yet. It has once so many changes are durable.
	pending bool
	change  uint64
}

// readEvictions reads the journal, with victims that an earlier version kept in the state.
func (k *Keeper) readEvictions(before *state) {
	for _, e := range k.journal.Entries(evictionKind) {
		r := &record{}
		if err := json.Unmarshal(e.Data, r); err != nil || r.ID == "" {
			k.log.Warn("an entry of the journal cannot be read and is dropped", "id", e.ID, "error", err)
			k.journal.Drop(evictionKind, e.ID)
			continue
		}
		k.records = append(k.records, r)
	}
	for _, v := range before.InFlight {
		if v.Container != "" {
			continue
		}
		r := k.current(v.UID)
		if r == nil && k.api || r != nil && r.waits() {
			continue
		}
		if r == nil {
			f := eviction.InFlight{UID: v.UID, Decided: before.At.Wall.Add(-v.Since)}
			r = &record{Intent: wire.Intent{ID: f.ID(), UID: v.UID, Signal: v.Signal, Hard: v.Hard, Crossed: f.Decided, Decided: f.Decided}, Reported: true}
			k.records = append(k.records, r)
		}
		v.Decided = r.Decided
		r.InFlight, r.At = &v, before.At
	}
}

// waits says whether the Eviction API has not granted the eviction.
func (r *record) waits() bool {
	return r.Requested && !r.Granted && r.Override == "" && r.Ended.IsZero()
}

// dropRequested drops the soft victims that waited for the Eviction API: their pods are ranked again.
func (k *Keeper) dropRequested() {
	for _, r := range k.records {
		if r.waits() {
			k.dropped = append(k.dropped, r.Intent)
		}
	}
	k.remove((*record).waits)
}

// Dropped are the soft victims of the process before this one whose evictions the API server had not granted.
func (k *Keeper) Dropped() []wire.Intent { return k.dropped }

// resumeEvictions are the victims in flight. The others are forgotten where nothing of them is to
// be reported.
func (k *Keeper) resumeEvictions(cfg *eviction.Config, now osprocess.Instant) (victims []eviction.InFlight) {
	for _, r := range slices.Clone(k.records) {
		f, is := r.resume(cfg, now)
		if r.InFlight == nil && !r.pending {
			continue
		}
		if is {
			victims, r.written = append(victims, f), f
		} else {
			r.InFlight = nil
		}
		k.write(r)
	}
	return victims
}

// resume is the victim in flight. One with a report that has not ended always is; another one
// neither after a reboot nor where its age is unknown.
func (r *record) resume(cfg *eviction.Config, now osprocess.Instant) (f eviction.InFlight, is bool) {
	reported := !r.Reported && r.Ended.IsZero()
	ago, known := now.Since(r.At)
	switch v := r.InFlight; {
	case v == nil && !reported:
		return f, false
	case v == nil: // an earlier version did not keep it, or knew that it was overdue
		r.InFlight = &eviction.KeptVictim{UID: r.UID, Decided: r.Decided, Signal: r.Signal, Hard: true, Since: now.Wall.Sub(r.Decided)}
		r.At, ago = now, 0
	case !reported && (!known || now.Boot != r.At.Boot):
		return f, false
	}
	r.InFlight.Reported = reported
	return r.InFlight.Restore(cfg, time.Now(), max(0, ago))
}

// follow updates the evictions by a pass: those that were decided, graces that have changed,
// and victims that are not in flight any more.
func (k *Keeper) follow(r *control.Report, victims []eviction.KeptVictim, at osprocess.Instant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range r.Decisions {
		for j := range r.Decisions[i].Evictions {
			e := &r.Decisions[i].Evictions[j]
			if f := r.State.Victim(e.Pod.UID); f != nil {
				added := &record{Intent: intentOf(e, f), Reported: !k.api || e.Pod.Outside}
				added.ID = f.ID()
				k.add(added)
			}
		}
	}
	k.remove(func(e *record) bool { return slices.Contains(r.Withdrawn, e.UID) })
	for _, e := range slices.Clone(k.records) {
		i := slices.IndexFunc(r.State.InFlight, func(f eviction.InFlight) bool { return f.UID == e.UID && f.ID() == e.ID })
		switch {
		case i >= 0 && (e.InFlight == nil || !e.written.SameKept(r.State.InFlight[i])):
			e.InFlight, e.At, e.written = &victims[i], at, r.State.InFlight[i]
		case i < 0 && e.InFlight != nil:
			e.InFlight = nil
			if e.Ended.IsZero() { // its end was not reported in time
				e.Ended = r.At
			}
		default:
			continue
		}
		k.write(e)
	}
}

// intentOf is what is written to the API server for an eviction, without its ID. For a soft victim
// with Patience the Eviction API is asked first.
func intentOf(e *eviction.Eviction, f *eviction.InFlight) wire.Intent {
	return wire.Intent{
		UID: f.UID, Decided: f.Decided, Signal: f.Signal.String(), Hard: e.Hard, Namespace: e.Pod.Namespace, Name: e.Pod.Name,
		Generation: e.Pod.Generation, Owner: e.Pod.Owner, Crossed: e.Since, Message: e.Message, Annotations: e.Annotations,
		DisruptionTarget: e.DisruptionTarget, Requested: !e.Hard && f.Patience > 0,
	}
}

// add adds an eviction in place of an earlier one of the pod. It is written when it is
// complete; the lock is held.
func (k *Keeper) add(r *record) {
	r.Override = k.overrides[r.UID]
	delete(k.overrides, r.UID)
	k.remove(func(e *record) bool { return e.UID == r.UID })
	k.records = append(k.records, r)
	if len(k.records) > maxEvictions {
		oldest := k.records[0]
		k.remove(func(e *record) bool { return e == oldest })
	}
}

func (k *Keeper) remove(drop func(*record) bool) {
	k.records = slices.DeleteFunc(k.records, func(r *record) bool {
		dropped := drop(r)
		if dropped {
			k.journal.Drop(evictionKind, r.ID)
			k.intents.Free(r.key())
		}
		return dropped
	})
}

// current is the eviction of a pod that has not ended; nil without one. The lock is held.
func (k *Keeper) current(uid types.UID) *record {
	for _, r := range k.records {
		if r.UID == uid && r.Ended.IsZero() {
			return r
		}
	}
	return nil
}

// end keeps the result of a kill.
func (k *Keeper) end(result *kill.Result, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.current(result.UID)
	if r == nil {
		return
	}
	if r.Ended = result.Gone; r.Ended.IsZero() {
		r.Overdue = true
		if errors.Is(result.Err, kill.ErrNotSignalled) { // the kill is not continued
			r.Ended = at
		}
	}
	k.write(r)
}

// write puts a record in the journal, or drops it where nothing is left of it. The lock is
// held.
func (k *Keeper) write(r *record) { k.writeAfter(r, k.intents.Replace) }

// writeAfter is write after the record is put among the intents in some way.
func (k *Keeper) writeAfter(r *record, put func(key uint64, entry []byte) bool) {
	if r.InFlight == nil && r.Reported {
		k.remove(func(e *record) bool { return e == r })
		return
	}
	data, err := json.Marshal(r)
	if err == nil {
		put(r.key(), data)
		err = k.journal.Put(evictionKind, r.ID, json.RawMessage(data))
	}
	if err != nil {
		k.log.Error("an eviction would not survive a crash", "error", err)
	}
	r.pending, r.change = true, k.journal.Changes()
	r.sent = r.Reported
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Changed receives when Unsent may have evictions.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// Unsent are the unreported evictions that have changed since the last call, or all of them,
// oldest first.
func (k *Keeper) Unsent(all bool) (intents []wire.Intent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if !r.Reported && (all || !r.sent) {
			r.sent = true
			intents = append(intents, r.Intent)
		}
	}
	return intents
}

// Evictions are all that are in flight or not reported, oldest first.
func (k *Keeper) Evictions() (intents []wire.Intent) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		intents = append(intents, r.Intent)
	}
	return intents
}

// Unreported are the pods of the evictions that the API server has not recorded, or whose end it has
// not; none without a Keeper.
func (k *Keeper) Unreported() []types.UID { return k.unreported(false) }

// Ended are those of Unreported that have ended.
func (k *Keeper) Ended() []types.UID { return k.unreported(true) }

func (k *Keeper) unreported(ended bool) (uids []types.UID) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if !r.Reported && (!ended || !r.Ended.IsZero()) {
			uids = append(uids, r.UID)
		}
	}
	return uids
}

// Override keeps why a victim is killed although the Eviction API has not granted it: it survives
// the process when the method returns.
func (k *Keeper) Override(uid types.UID, why string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.current(uid); r != nil {
		r.Override = why
		k.writeAfter(r, k.intents.Put)
		return
	}
	k.overrides[uid] = why
	k.overrideIntent(uid, why)
}

// Granted keeps that the Eviction API has granted the eviction of a pod: the next process continues it.
func (k *Keeper) Granted(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.current(uid); r != nil && !r.Granted {
		r.Granted = true
		k.write(r)
	}
}

// Reported returns an eviction of which nothing is to be sent any more; ok is false for one
// that is not kept.
func (k *Keeper) Reported(id string) (intent wire.Intent, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if r.ID == id {
			r.Reported = true
			k.write(r)
			return r.Intent, true
		}
	}
	return intent, false
}
