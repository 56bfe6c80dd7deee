package agent

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/wire"
)

// recorder is a Killer that remembers when what was killed, after it has refused
// so many.
type recorder struct {
	mu     sync.Mutex
	start  time.Time
	refuse int
	killed map[types.UID]time.Duration
	left   map[types.UID]bool // to a kubelet
	before func(types.UID)    // a kill; nil: nothing
}

func (r *recorder) Kill(v kill.Victim) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse--; r.refuse >= 0 {
		return errors.New("full")
	}
	if r.before != nil {
		r.before(v.UID)
	}
	r.killed[v.UID] = time.Since(r.start)
	if v.Elsewhere != nil {
		r.left[v.UID] = v.Grace == hookAllowance
	}
	return nil
}

func (r *recorder) Hasten(types.UID, time.Duration) {}
func (r *recorder) Killed(types.UID) bool           { return true }
func (r *recorder) Ended(kill.Target) bool          { return false }
func (r *recorder) Results() <-chan kill.Result     { return nil }

func (r *recorder) at(uid types.UID) (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.killed[uid]
	return d, ok
}

// asked runs an APIEvictor with a patience of 30 s in a bubble.
func asked(t *testing.T, do func(*APIEvictor, *recorder)) { runEvictor(t, false, do) }

func runEvictor(t *testing.T, kubelet bool, do func(*APIEvictor, *recorder)) {
	log, evictions := slog.New(slog.DiscardHandler), newKeeper(t, t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		below := &recorder{start: time.Now(), killed: map[types.UID]time.Duration{}, left: map[types.UID]bool{}}
		k := NewAPIEvictor(below, New(Config{Node: wire.Node{Publish: true}}, evictions, log), SoftEviction{Patience: 30 * time.Second, Kubelet: kubelet}, log)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = k.Run(ctx) })
		do(k, below)
		cancel()
		running.Wait()
	})
}

func soft(uid types.UID) kill.Victim { return kill.Victim{UID: uid, Name: "default/p", Soft: true} }

func TestHardVictimNeverWaits(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		if err := k.Kill(kill.Victim{UID: "a"}); err != nil {
			t.Error(err)
		}
		if at, killed := below.at("a"); !killed || at != 0 {
			t.Errorf("killed %t after %v", killed, at)
		}
	})
}

func TestSoftVictimIsEvictedWhenGrantedAndElseAtTheDeadline(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		l := loop{Keeper: k.agent.evictions}
		for _, uid := range []types.UID{"free", "held", "unanswered"} {
			if err := k.Kill(soft(uid)); err != nil {
				t.Error(err)
			}
			l.evict(uid, false, "")
		}
		time.Sleep(time.Second)
		k.agent.answers <- wire.EvictionResponse{UID: "held", Refused: "a budget"}
		k.agent.answers <- wire.EvictionResponse{UID: "free"}
		time.Sleep(time.Second)
		if at, killed := below.at("free"); !killed || at > 1100*time.Millisecond {
			t.Errorf("with leave: killed %t after %v", killed, at)
		}
		if _, killed := below.at("held"); killed {
			t.Error("the budget was not respected")
		}
		time.Sleep(30 * time.Second)
		for _, uid := range []types.UID{"held", "unanswered"} {
			if at, killed := below.at(uid); !killed || at < 30*time.Second {
				t.Errorf("%s: killed %t after %v", uid, killed, at)
			}
		}
		for _, i := range k.agent.evictions.Evictions() {
			if !i.Requested || (i.Override == "") != (i.UID == "free") {
				t.Errorf("intent %+v", i)
			}
		}
	})
}

// rule: M.170
func TestWhatIsLeftOfAGraceIsRequestedInWholeSeconds(t *testing.T) {
	asked(t, func(k *APIEvictor, _ *recorder) {
		for grace, want := range map[time.Duration]int64{0: 1, time.Millisecond: 1, 1500 * time.Millisecond: 2, 30 * time.Second: 30} {
			v := soft(types.UID(grace.String()))
			v.Grace = grace
			if err := k.Kill(v); err != nil {
				t.Error(err)
			}
			if got := k.agent.out.requests[v.UID].GraceSeconds; got != want {
				t.Errorf("%v: requested are %d s, want %d s", grace, got, want)
			}
		}
	})
}

// TestARequestIsWithdrawnWhileItIsNotGranted has a victim withdrawn, one whose eviction is granted, and one that waits for no
// object.
//
// rule: M.164
func TestARequestIsWithdrawnWhileItIsNotGranted(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		if _ = k.Kill(soft("asked")); k.Withdraw("asked") {
			t.Error("a request to the Eviction API is withdrawn")
		}
		k.cfg.Object = true
		for _, uid := range []types.UID{"withdrawn", "granted"} {
			_ = k.Kill(soft(uid))
		}
		k.agent.answers <- wire.EvictionResponse{UID: "granted"}
		time.Sleep(time.Second)
		if k.Withdraw("granted") || !k.Withdraw("withdrawn") || k.Withdraw("withdrawn") {
			t.Error("not exactly the request that was not granted is withdrawn")
		}
		if sent := k.agent.out.requests["withdrawn"]; sent == nil || !sent.Object || !sent.Withdrawn {
			t.Errorf("sent %+v", sent)
		}
		k.agent.handle(&wire.FromAgent{EvictionResponse: &wire.EvictionResponse{UID: "withdrawn", Withdrawn: true}})
		time.Sleep(time.Minute)
		if _, killed := below.at("withdrawn"); killed {
			t.Error("a withdrawn victim is killed")
		}
		if sent := k.agent.out.requests["withdrawn"]; sent != nil {
			t.Errorf("%+v is sent again", sent)
		}
	})
}

// TestTheAnswerToAWithdrawalGrantsNothing has it arrive after the pod was chosen again.
//
// rule: M.168
func TestTheAnswerToAWithdrawalGrantsNothing(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		k.cfg.Object = true
		_ = k.Kill(soft("again"))
		k.Withdraw("again")
		_ = k.Kill(soft("again"))
		k.agent.handle(&wire.FromAgent{EvictionResponse: &wire.EvictionResponse{UID: "again", Withdrawn: true}})
		time.Sleep(29 * time.Second)
		if _, killed := below.at("again"); killed {
			t.Error("the pod is killed before its deadline")
		}
		if sent := k.agent.out.requests["again"]; sent == nil || sent.Withdrawn {
			t.Errorf("sent %+v", sent)
		}
	})
}

// rule: M.104
func TestHastenedVictimIsKilledOnceTheReasonIsKept(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		_ = k.Kill(soft("a"))
		l := loop{Keeper: k.agent.evictions}
		l.evict("a", false, "")
		below.before = func(types.UID) {
			if kept := l.Evictions(); kept[0].Override == "" {
				t.Error("it is killed before the reason is kept")
			}
		}
		k.Hasten("a", time.Second)
		if _, killed := below.at("a"); !killed {
			t.Error("it is not killed")
		}
	})
}

func TestVictimThatWaitsForTheEvictionAPIIsKilledAtOnceWhenHastened(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		below.refuse = 1
		if err := k.Kill(soft("a")); err != nil {
			t.Error(err)
		}
		k.Hasten("a", time.Second) // before the decision is kept
		l := loop{Keeper: k.agent.evictions}
		l.evict("a", false, "")
		k.Hasten("a", time.Second)
		if at, killed := below.at("a"); !killed || at != 0 || len(k.waiting) > 0 {
			t.Errorf("killed %t after %v, %d wait", killed, at, len(k.waiting))
		}
		if intents := k.agent.evictions.Evictions(); len(intents) != 1 || !intents[0].Requested || !strings.Contains(intents[0].Override, "hard threshold") {
			t.Errorf("intents %+v", intents)
		}
	})
}

func TestSoftVictimThatTheKillerRefusesIsTriedAgain(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		below.refuse = 3
		if err := k.Kill(soft("a")); err != nil {
			t.Error(err)
		}
		k.agent.answers <- wire.EvictionResponse{UID: "a"}
		time.Sleep(time.Second)
		if _, killed := below.at("a"); !killed {
			t.Error("it was not killed")
		}
	})
}

func TestHardKillOfASoftVictimEndsTheWaiting(t *testing.T) {
	asked(t, func(k *APIEvictor, below *recorder) {
		_ = k.Kill(soft("a"))
		_ = k.Kill(kill.Victim{UID: "a"})
		if at, killed := below.at("a"); !killed || at != 0 {
			t.Errorf("killed %t after %v", killed, at)
		}
		time.Sleep(time.Minute)
		if at, _ := below.at("a"); at != 0 {
			t.Errorf("killed a second time after %v", at)
		}
	})
}

// rule: M.88
func TestBesideAKubeletAVictimIsDeletedAtTheDeadlineAndLeftToTheKubelet(t *testing.T) {
	runEvictor(t, true, func(k *APIEvictor, below *recorder) {
		l := loop{Keeper: k.agent.evictions}
		for _, uid := range []types.UID{"free", "held", "unanswered"} {
			if err := k.Kill(soft(uid)); err != nil {
				t.Error(err)
			}
			l.evict(uid, false, "")
		}
		k.agent.answers <- wire.EvictionResponse{UID: "free"}
		k.agent.answers <- wire.EvictionResponse{UID: "held", Refused: "a budget"}
		time.Sleep(31 * time.Second)
		k.agent.mu.Lock()
		for _, uid := range []types.UID{"held", "unanswered"} {
			if r := k.agent.out.requests[uid]; r == nil || !r.Delete {
				t.Errorf("%s: request %+v, want a deletion", uid, r)
			}
		}
		k.agent.mu.Unlock()
		k.agent.answers <- wire.EvictionResponse{UID: "held"}
		time.Sleep(time.Minute)
		for uid, left := range map[types.UID]bool{"free": true, "held": true, "unanswered": false} {
			if _, killed := below.at(uid); !killed || below.left[uid] != left {
				t.Errorf("%s: handed on %t, left to the kubelet %t", uid, killed, below.left[uid])
			}
		}
	})
}

func TestDirectSoftVictimIsDeletedAndKilledWhereThatFails(t *testing.T) {
	runEvictor(t, true, func(k *APIEvictor, below *recorder) {
		k.cfg.Patience, k.cfg.Direct = DeletionPatience, true
		l := loop{Keeper: k.agent.evictions}
		for _, uid := range []types.UID{"deleted", "unanswered"} {
			if err := k.Kill(soft(uid)); err != nil {
				t.Error(err)
			}
			l.evict(uid, false, "")
			k.agent.mu.Lock()
			if r := k.agent.out.requests[uid]; r == nil || !r.Delete {
				t.Errorf("%s: request %+v, want a deletion", uid, r)
			}
			k.agent.mu.Unlock()
		}
		k.agent.answers <- wire.EvictionResponse{UID: "deleted"}
		time.Sleep(time.Minute)
		for uid, left := range map[types.UID]bool{"deleted": true, "unanswered": false} {
			if _, killed := below.at(uid); !killed || below.left[uid] != left {
				t.Errorf("%s: handed on %t, left to the kubelet %t", uid, killed, below.left[uid])
			}
		}
		for _, i := range k.agent.evictions.Evictions() {
			if (i.Override == "") != (i.UID == "deleted") {
				t.Errorf("intent %+v", i)
			}
		}
	})
}
