package eviction

import (
	"k8s.io/apimachinery/pkg/types"
)

// Room is memory made beforehand for what Decide returns, so that it allocates
// nothing. What a call takes belongs to what it returns and is never given out
// again; where there is not enough, Decide allocates. What is decided does not
// depend on it.
type Room struct {
	met       []Met
	ranking   []Ranked
	evictions []Eviction
	inFlight  []InFlight
	chosen    []types.UID
}

// roomForVictims is how many victims in flight a Room has place for beside a new
// one.
const roomForVictims = 32

// Refill makes room for one pass over so many pods where something was taken.
func (r *Room) Refill(pods int) {
	refill(&r.met, MaxThresholds)
	refill(&r.ranking, pods)
	refill(&r.evictions, 1)
	refill(&r.inFlight, roomForVictims+1)
	refill(&r.chosen, 1)
}

func refill[T any](s *[]T, n int) {
	if cap(*s) < n {
		*s = make([]T, 0, n)
	}
}

func (r *Room) forMet() []Met { return take(r, func(r *Room) *[]Met { return &r.met }, 1) }
func (r *Room) forRanking(pods int) []Ranked {
	return take(r, func(r *Room) *[]Ranked { return &r.ranking }, pods)
}
func (r *Room) forEvictions() []Eviction {
	return take(r, func(r *Room) *[]Eviction { return &r.evictions }, 1)
}

// forInFlight copies the victims to where there is room for one more: earlier
// states keep what they hold.
func (r *Room) forInFlight(victims []InFlight) []InFlight {
	return append(take(r, func(r *Room) *[]InFlight { return &r.inFlight }, len(victims)+1), victims...)
}

func (r *Room) forChosen(victims []types.UID) []types.UID {
	return append(take(r, func(r *Room) *[]types.UID { return &r.chosen }, len(victims)+1), victims...)
}

// take gives out what there is, if it suffices, and leaves nothing.
func take[T any](r *Room, of func(*Room) *[]T, n int) []T {
	if r == nil || cap(*of(r)) < n {
		return make([]T, 0, n)
	}
	s := of(r)
	taken := (*s)[:0]
	*s = nil
	return taken
}
