package cycle

import (
	"math/rand/v2"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// seeded are the random numbers of a seed.
type seeded struct {
	*rand.Rand
	source *rand.PCG
}

// NewRandom makes random numbers that a what-if can continue without a change to those of
// the attempts.
func NewRandom(seed1, seed2 uint64) framework.Random { return newSeeded(rand.NewPCG(seed1, seed2)) }

func newSeeded(source *rand.PCG) seeded { return seeded{rand.New(source), source} }

// Fork makes the same numbers again, from the next on.
func (s seeded) Fork() framework.Random {
	source := *s.source
	return newSeeded(&source)
}

// first selects the first of equal choices.
type first struct{}

func (first) IntN(int) int { return 0 }

// numbers are the random numbers of the attempts, or of the what-if that runs.
type numbers struct{ framework.Random }

// fork returns the numbers that follow. If those of Config.Env have no Fork, the first of
// equal choices is selected.
func (n *numbers) fork() framework.Random {
	if s, ok := n.Random.(interface{ Fork() framework.Random }); ok {
		return s.Fork()
	}
	return first{}
}
