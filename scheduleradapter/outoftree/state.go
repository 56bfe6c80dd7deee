package outoftree

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// cycleState is a fwk.CycleState. Any goroutine may use it.
type cycleState struct {
	mu   sync.RWMutex
	data map[fwk.StateKey]fwk.StateData
	// Plugins that returned Skip.
	noFilter, noScore, noPreBind, parallel sets.Set[string]
	// moves are the changes that a plugin has tried through its Handle with this
	// state.
	moves []nodetable.Move
	// scoring is the cycle of RunPreScorePlugins with this state.
	scoring *framework.Cycle
}

func newState() *cycleState {
	return &cycleState{data: map[fwk.StateKey]fwk.StateData{}}
}

// Read returns fwk.ErrNotFound for an unknown key.
func (s *cycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if value, found := s.data[key]; found {
		return value, nil
	}
	return nil, fwk.ErrNotFound
}

func (s *cycleState) Write(key fwk.StateKey, value fwk.StateData) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data[key] = value
}

func (s *cycleState) Delete(key fwk.StateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.data, key)
}

// Clone clones each value.
func (s *cycleState) Clone() fwk.CycleState {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	c := &cycleState{
		data: maps.Clone(s.data), noFilter: s.noFilter.Clone(), noScore: s.noScore.Clone(), noPreBind: s.noPreBind.Clone(),
		parallel: s.parallel.Clone(), moves: slices.Clone(s.moves),
	}
	for key, value := range c.data {
		c.data[key] = value.Clone()
	}
	return c
}

func (s *cycleState) skips(of *sets.Set[string]) sets.Set[string] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return *of
}

func (s *cycleState) setSkips(of *sets.Set[string], plugins sets.Set[string]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*of = plugins
}

func (s *cycleState) skip(of *sets.Set[string], plugin string) {
	s.setSkips(of, s.skips(of).Union(sets.New(plugin)))
}

func (s *cycleState) GetSkipFilterPlugins() sets.Set[string]       { return s.skips(&s.noFilter) }
func (s *cycleState) SetSkipFilterPlugins(p sets.Set[string])      { s.setSkips(&s.noFilter, p) }
func (s *cycleState) GetSkipScorePlugins() sets.Set[string]        { return s.skips(&s.noScore) }
func (s *cycleState) SetSkipScorePlugins(p sets.Set[string])       { s.setSkips(&s.noScore, p) }
func (s *cycleState) GetSkipPreBindPlugins() sets.Set[string]      { return s.skips(&s.noPreBind) }
func (s *cycleState) SetSkipPreBindPlugins(p sets.Set[string])     { s.setSkips(&s.noPreBind, p) }
func (s *cycleState) GetParallelPreBindPlugins() sets.Set[string]  { return s.skips(&s.parallel) }
func (s *cycleState) SetParallelPreBindPlugins(p sets.Set[string]) { s.setSkips(&s.parallel, p) }

// These features are off: plugin metrics are not sampled, pod groups are not
// scheduled.
func (s *cycleState) ShouldRecordPluginMetrics() bool                    { return false }
func (s *cycleState) ShouldSkipAllPostFilterPlugins() bool               { return false }
func (s *cycleState) IsPodGroupSchedulingCycle() bool                    { return false }
func (s *cycleState) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState { return nil }
func (s *cycleState) GetPlacementCycleState() fwk.PlacementCycleState    { return nil }
