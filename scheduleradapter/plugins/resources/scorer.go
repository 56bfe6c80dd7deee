package resources

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Names of the plugin Scorer: a legacy Policy may ask for several strategies.
const (
	LeastName = "NodeResourcesLeastAllocated"
	MostName  = "NodeResourcesMostAllocated"
	RatioName = "RequestedToCapacityRatio"
)

// Scorer scores as Fit does, beside it, by a strategy of its own.
type Scorer struct {
	name string
	fit  *Fit
}

// ScorerRegistration of a plugin that only scores: LeastName, MostName or RatioName.
func ScorerRegistration(name string) framework.Registration {
	return framework.Register[*Scorer](name, NewScorer(name))
}

// NewScorer makes one under a name; its arguments are those of NewFit.
func NewScorer(name string) framework.Factory {
	return func(args any, env framework.Env) (framework.Plugin, error) {
		fit, err := NewFit(args, env)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &Scorer{name, fit.(*Fit)}, nil
	}
}

// Name of the plugin.
func (s *Scorer) Name() string { return s.name }

// Score rates how full a node would be with the pod.
func (s *Scorer) Score(c *framework.Cycle, rows []nodetable.Row, scores []int64) framework.Status {
	return s.fit.Score(c, rows, scores)
}
