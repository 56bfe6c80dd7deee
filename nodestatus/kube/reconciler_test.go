package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

func TestChoreThatFailsIsTriedLessAndLessOften(t *testing.T) {
	down, forbidden := errors.New("down"), apierrors.NewForbidden(v1.Resource("nodes"), "n", errors.New("no rights"))
	for _, c := range []struct {
		name string
		errs []error
		want []time.Duration // of the attempts
	}{
		{"and again when it is due", []error{nil}, []time.Duration{0, time.Minute}},
		{"after twice as long each time", []error{down, down, down, nil}, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond}},
		{"when the server asks for it", []error{apierrors.NewTooManyRequests("busy", 7), nil}, []time.Duration{0, 7 * time.Second}},
		{
			"soon and then rarely when it is forbidden", slices.Repeat([]error{forbidden}, 8),
			[]time.Duration{0, 1 * time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second, 31 * time.Second, 61 * time.Second, 91 * time.Second},
		},
		{
			"soon when it is forbidden after an outage",
			slices.Concat(slices.Repeat([]error{down}, 8), []error{forbidden, forbidden, down, nil}),
			[]time.Duration{
				0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond, 1500 * time.Millisecond, 3100 * time.Millisecond, 6300 * time.Millisecond, 11300 * time.Millisecond,
				16300 * time.Millisecond, 17300 * time.Millisecond, 19300 * time.Millisecond, 24300 * time.Millisecond,
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) { mustBeTried(t, c.errs, c.want, func(*reconciler) {}) })
	}
}

func TestVictimsAreReportedSoonAfterTheAPIServerAnswersAgain(t *testing.T) {
	unanswered := func(c *reconciler) { c.longestUnanswered = unansweredVictims }
	down, fault := fmt.Errorf("patch: %w", errors.New("down")), fmt.Errorf("patch: %w", apierrors.NewInternalError(errors.New("webhook")))
	mustBeTried(t, []error{down, down, down, down, nil}, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 550 * time.Millisecond, 800 * time.Millisecond}, unanswered)
	mustBeTried(t, []error{fault, fault, fault, nil}, []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond}, unanswered)
}

// mustBeTried runs a reconciler whose attempts return errs, the last one from then on, and checks
// when they are made.
func mustBeTried(t *testing.T, errs []error, want []time.Duration, configure func(*reconciler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var attempts []time.Duration
		chore := newReconciler("test", time.Minute, func(context.Context) error {
			attempts = append(attempts, time.Since(start))
			if len(attempts) == len(want) {
				cancel()
			}
			return errs[min(len(attempts), len(errs))-1]
		})
		configure(chore)
		chore.trigger()
		var running sync.WaitGroup
		running.Go(func() { chore.run(ctx, slog.New(slog.DiscardHandler)) })
		running.Wait()
		if !slices.Equal(attempts, want) {
			t.Errorf("tried after %v, want %v", attempts, want)
		}
	})
}

func TestRivalIsLoggedOnceAfterThreeTurns(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	of := func(status v1.ConditionStatus) []v1.NodeCondition {
		return []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: status, Reason: "KubeletHasSufficientMemory"}}
	}
	turn := func(r *conflictDetector, to v1.ConditionStatus, at time.Time) string {
		r.recordWrite(of(v1.ConditionTrue))
		r.observe(of(v1.ConditionTrue), at)
		return r.observe(of(to), at)
	}
	for _, c := range []struct {
		name   string
		to     v1.ConditionStatus
		apart  time.Duration
		turns  int
		stops  bool
		wanted int
	}{
		{"often", v1.ConditionFalse, time.Minute, 5, true, 1},
		{"twice", v1.ConditionFalse, time.Minute, 2, false, 0},
		{"rarely", v1.ConditionFalse, 6 * time.Minute, 10, false, 0},
		{"by a node controller", v1.ConditionUnknown, time.Minute, 10, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newConflictDetector()
			conflicts := 0
			for i := range c.turns {
				if turn(&r, c.to, at.Add(time.Duration(i)*c.apart)) != "" {
					conflicts++
				}
			}
			if conflicts != c.wanted || r.detected != c.stops {
				t.Errorf("%d conflicts, stopped %t", conflicts, r.detected)
			}
		})
	}
	r := newConflictDetector()
	for range 10 { // our own turns, each seen when the next is under way
		r.recordWrite(of(v1.ConditionTrue))
		r.observe(of(v1.ConditionFalse), at)
		r.observe(of(v1.ConditionTrue), at)
		r.recordWrite(of(v1.ConditionFalse))
		r.observe(of(v1.ConditionTrue), at)
		r.observe(of(v1.ConditionFalse), at)
	}
	if len(r.flips) > 0 {
		t.Errorf("our own turns count as %d of a rival", len(r.flips))
	}
}

func TestConditionsThatANodeIsMadeWithAreOurs(t *testing.T) {
	raised := []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue}}
	p := New(fake.NewClientset(), wire.Node{Name: "n", Publish: true, Register: true}, nodestatus.Native, NewRequests(), func(wire.FromAgent) {}, slog.New(slog.DiscardHandler))
	p.Handle(wire.ToAgent{Conditions: &wire.NodeConditions{Conditions: raised}})
	require.NoError(t, p.register(t.Context()))
	turned := p.seen.DeepCopy()
	turned.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse}}
	if p.nodeChanged(turned); len(p.conflicts.flips) != 1 {
		t.Errorf("%d turns of a rival, want 1", len(p.conflicts.flips))
	}
}

func TestNotesAreCutBetweenCharacters(t *testing.T) {
	note := string(slices.Repeat([]rune{'ü'}, maxNote))
	if got := shorten("a" + note); len(got) != maxNote-1 {
		t.Errorf("%d bytes", len(got))
	}
}
