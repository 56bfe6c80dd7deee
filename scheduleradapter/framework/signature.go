package framework

import "github.com/evictd/evictd/scheduleradapter/nodetable"

// Signature has what the results of plugins for a row depend on, besides the row's node
// and the pods there. Attempts with equal signatures have equal results for a row that
// did not change.
type Signature struct {
	runner  *Runner
	shape   nodetable.Shape
	numbers [signedNumbers]int64
	symbols [signedSymbols]nodetable.Symbol
	// lengths are those of numbers and symbols. They may exceed the arrays: such a
	// signature is not valid.
	lengths [2]int
}

const signedNumbers, signedSymbols = 32, 16

// Add adds numbers.
func (s *Signature) Add(numbers ...int64) {
	if s.lengths[0] < signedNumbers {
		copy(s.numbers[s.lengths[0]:], numbers)
	}
	s.lengths[0] += len(numbers)
}

// AddSymbols adds interned strings.
func (s *Signature) AddSymbols(symbols ...nodetable.Symbol) {
	if s.lengths[1] < signedSymbols {
		copy(s.symbols[s.lengths[1]:], symbols)
	}
	s.lengths[1] += len(symbols)
}

func (s *Signature) valid() bool {
	return s.lengths[0] <= signedNumbers && s.lengths[1] <= signedSymbols
}

// end ends the part of a plugin, so that different parts do not look alike.
func (s *Signature) end(plugin, width int) {
	s.Add(int64(plugin)<<32 | int64(width)<<16 | int64(s.lengths[1]))
}

// hash is equal for equal signatures.
func (s *Signature) hash() nodetable.Hash {
	h := s.shape.Hash(0).Numbers(s.numbers[:s.lengths[0]]...).Symbols(s.symbols[:s.lengths[1]]...)
	return h ^ h>>32
}

// RowFilterer is a Filterer that also filters single rows, for ScoreCache.
type RowFilterer interface {
	Filterer
	// SignFilter prepares FitsRow for the cycle's pod, after PreFilter. It adds to the
	// signature what the results depend on besides the node of a row and the pods there;
	// the requests of the pod are part of each signature. ok is false if a result depends
	// on anything else.
	//
	// width is the number of values that the plugin has in the class of a row; 0: none,
	// and the plugin need not be a ClassFilterer.
	SignFilter(c *Cycle, s *Signature) (width int, ok bool)
	// FitsRow is the result of Filter for a row with a node, as far as it does not follow
	// from the class.
	FitsRow(c *Cycle, row nodetable.Row) bool
}

// ClassFilterer is a RowFilterer with results that are the same for all rows of a class:
// the nodes of a domain.
type ClassFilterer interface {
	RowFilterer
	// FilterClass fills the values of a row, which its node and the pods there determine.
	FilterClass(c *Cycle, row nodetable.Row, values []int32)
	// FitsClass is the result for the rows with these values. It depends on the current
	// table.
	FitsClass(c *Cycle, values []int32) bool
}

// RowScorer is a Scorer without Normalizer that also scores rows that are not feasible,
// for ScoreCache.
type RowScorer interface {
	Scorer
	// SignScore is SignFilter for ScoreSpan. scores is false if all rows have the same
	// score. It replaces PreScore.
	SignScore(c *Cycle, s *Signature) (scores, ok bool)
	// ScoreSpan fills the scores of consecutive rows from one on. Those of rows without a
	// node have no meaning.
	ScoreSpan(c *Cycle, from nodetable.Row, scores []int64)
}

// ClassScorer is a Scorer whose scores are the same for all rows of a class. If it is a
// Normalizer, Normalize depends only on which scores there are.
type ClassScorer interface {
	Scorer
	// SignClasses is SignFilter for ScoreClasses. The width 0 is that all rows have the same
	// score. It replaces PreScore.
	SignClasses(c *Cycle, s *Signature) (width int, ok bool)
	// ScoreClass fills the values of a row, which its node and the pods there determine.
	ScoreClass(c *Cycle, row nodetable.Row, values []int32)
	// ScoreClasses fills the scores of the classes with feasible rows. They depend on the
	// current table.
	ScoreClasses(c *Cycle, classes []Class, scores []int64)
}

// Class is a set of feasible rows with the same values of a plugin.
type Class struct {
	Values []int32
	Rows   int
}

// IdleScorer is a Scorer that reports after PreFilter whether all rows have the same
// score. Otherwise a ScoreCache does not have the pod.
type IdleScorer interface {
	Scorer
	ScoresAlike() bool
}
