package eviction

import (
	"k8s.io/apimachinery/pkg/types"
)

// Buffers is memory that is allocated before a pass for what Decide returns. A
// call takes what it needs; taken memory belongs to what the call returns and is
// not given out again. Where a buffer is too small, Decide allocates. Decisions do
// not depend on it.
type Buffers struct {
	met       []Met
	ranking   []Ranked
	evictions []Eviction
	restarts  []ContainerRestart
	restarted []RestartedContainer
	inFlight  []InFlight
	chosen    []types.UID

	steps []StepAction
}

// victimBuffer is for how many victims in flight Buffers have space beside a new
// one.
const victimBuffer = 32

// restartBuffer is for how many restarts not long ago there is space beside a new one.
const restartBuffer = 8

// stepBuffer is for the steps that end where a hard threshold is crossed: one of each kind.
const stepBuffer = 2

// Refill allocates what a pass over so many pods needs, where it was taken.
func (b *Buffers) Refill(pods int) {
	refill(&b.met, MaxThresholds)
	refill(&b.ranking, pods)
	refill(&b.evictions, 1)
	refill(&b.restarts, 1)
	refill(&b.restarted, restartBuffer+1)
	refill(&b.inFlight, victimBuffer+1)
	refill(&b.chosen, 1)
	refill(&b.steps, stepBuffer)
}

func refill[T any](s *[]T, n int) {
	if cap(*s) < n {
		*s = make([]T, 0, n)
	}
}

func (b *Buffers) forMet() []Met { return take(b, func(b *Buffers) *[]Met { return &b.met }, 1) }
func (b *Buffers) forRanking(pods int) []Ranked {
	return take(b, func(b *Buffers) *[]Ranked { return &b.ranking }, pods)
}

// returnRanking takes back what no decision has.
func (b *Buffers) returnRanking(ranking []Ranked) {
	if b != nil {
		b.ranking = ranking[:0]
	}
}

func (b *Buffers) forEvictions() []Eviction {
	return take(b, func(b *Buffers) *[]Eviction { return &b.evictions }, 1)
}

func (b *Buffers) forRestarts() []ContainerRestart {
	return take(b, func(b *Buffers) *[]ContainerRestart { return &b.restarts }, 1)
}

// forRestarted is as forInFlight.
func (b *Buffers) forRestarted(restarts []RestartedContainer) []RestartedContainer {
	return append(take(b, func(b *Buffers) *[]RestartedContainer { return &b.restarted }, len(restarts)+1), restarts...)
}

// forInFlight copies the victims into a slice with capacity for one more: earlier
// states share no memory with later ones.
func (b *Buffers) forInFlight(victims []InFlight) []InFlight {
	return append(take(b, func(b *Buffers) *[]InFlight { return &b.inFlight }, len(victims)+1), victims...)
}

func (b *Buffers) forChosen(victims []types.UID) []types.UID {
	return append(take(b, func(b *Buffers) *[]types.UID { return &b.chosen }, len(victims)+1), victims...)
}

func (b *Buffers) forSteps() []StepAction {
	return take(b, func(b *Buffers) *[]StepAction { return &b.steps }, stepBuffer)
}

// take gives out a whole buffer where it suffices, and allocates otherwise.
func take[T any](b *Buffers, of func(*Buffers) *[]T, n int) []T {
	if b == nil || cap(*of(b)) < n {
		return make([]T, 0, n)
	}
	s := of(b)
	taken := (*s)[:0]
	*s = nil
	return taken
}
