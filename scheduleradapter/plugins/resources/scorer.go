package resources

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Names of the score plugins for further strategies of a legacy Policy.
const (
	LeastName = "NodeResourcesLeastAllocated"
	MostName  = "NodeResourcesMostAllocated"
	RatioName = "RequestedToCapacityRatio"
)

// Scorer scores like Fit by its own strategy.
type Scorer struct {
	name string
	fit  *Fit
}

// NewScorer makes a Scorer of a name; its arguments are those of NewFit.
func NewScorer(name string) framework.Factory {
	return func(args any, env framework.Env) (framework.Plugin, error) {
		fit, err := NewFit(args, env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &Scorer{name, fit.(*Fit)}, nil
	}
}

func (s *Scorer) Name() string { return s.name }

func (s *Scorer) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	return s.fit.Score(c, rows, scores)
}

// SignScore is that of Fit.
func (s *Scorer) SignScore(c *framework.Cycle, signature *framework.Signature) (scores, ok bool) {
	return s.fit.SignScore(c, signature)
}

// ScoreSpan is that of Fit.
func (s *Scorer) ScoreSpan(c *framework.Cycle, from nodetable.Row, scores []int64) {
	s.fit.ScoreSpan(c, from, scores)
}
