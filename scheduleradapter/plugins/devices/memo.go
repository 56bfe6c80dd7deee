package devices

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// maxMemos bounds the number of memos; the least recently used memo is dropped.
const maxMemos = 16

// memos has the results of the allocator by the shape of the claims. The result for
// a node is valid until a slice or an allocation of its pools, its labels, or a
// device class changes.
type memos struct {
	byShape map[string]*memo
	uses    uint64
}

// memo has the results for claims with the same shapes.
type memo struct {
	used uint64 // number of the last use
	// epoch and stale are how much of the inventory's changes are applied, labels is
	// the version of the table.
	epoch, labels uint64
	stale         int

	known, fits nodetable.Bits
	results     []result // by row; valid if known
	// bare is the result for nodes without slices; nil: unknown.
	bare *result
}

// result is that of the allocator for a node.
type result struct {
	node *nodetable.Node
	// allocations are one for each claim; nil: reason is why.
	allocations []resourceapi.AllocationResult
	reason      uint32
	score       int64 // of the prioritized lists
}

// shapeOf is the spec of a claim as text, without the configurations for drivers.
// Claims with the same text have the same devices.
func shapeOf(spec *resourceapi.ResourceClaimSpec) (string, error) {
	devices := spec.Devices
	devices.Config = nil
	text, err := json.Marshal(devices)
	if err != nil {
		return "", fmt.Errorf("encode the spec of a claim: %w", err)
	}
	return string(text), nil
}

// memoFor finds the memo of claims, without what has changed since its last use.
func (s *Store) memoFor(shapes []string) *memo {
	if s.memos.byShape == nil {
		s.memos.byShape = map[string]*memo{}
	}
	key := strings.Join(shapes, "\n")
	m := s.memos.byShape[key]
	if m == nil {
		if len(s.memos.byShape) >= maxMemos {
			s.memos.dropOldest()
		}
		m = &memo{}
		s.memos.byShape[key] = m
	}
	s.memos.uses++
	m.used = s.memos.uses
	m.refresh(s)
	return m
}

func (m *memos) dropOldest() {
	oldest := ""
	for key, candidate := range m.byShape {
		if first := m.byShape[oldest]; first == nil || candidate.used < first.used {
			oldest = key
		}
	}
	delete(m.byShape, oldest)
}

// refresh forgets the results that a change may affect.
func (m *memo) refresh(s *Store) {
	v, rows := &s.inventory, s.table.Rows()
	if m.epoch != v.epoch {
		m.epoch, m.stale, m.labels = v.epoch, 0, s.table.Versions.Labels
		m.known, m.fits, m.bare = m.known.Emptied(rows), m.fits.Emptied(rows), nil
	}
	if n := rows - len(m.results); n > 0 {
		m.results = slices.Grow(m.results, n)[:rows]
	}
	for len(m.known) < (rows+63)/64 {
		m.known, m.fits = append(m.known, 0), append(m.fits, 0)
	}
	for _, name := range v.stale[m.stale:] {
		if row := s.table.Row(name); row != nodetable.NoRow {
			m.known.Clear(row)
		}
	}
	m.stale = len(v.stale)
	if m.labels == s.table.Versions.Labels {
		return
	}
	m.labels = s.table.Versions.Labels
	for row := range m.known.All() {
		was, is := m.results[row].node, s.table.Node(row)
		if is == nil || was.Name != is.Name || !slices.Equal(was.Labels, is.Labels) {
			m.known.Clear(row)
		}
	}
}

// allocatorFor makes an allocator over the slices that the node sees.
func (s *Store) allocatorFor(node *nodetable.Node, allocated structured.AllocatedState) (structured.Allocator, error) {
	return structured.NewAllocator(s.ctx, features, allocated, lister{s}, s.inventory.visible(node.Name), s.selectors)
}
