package outoftree

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// snapshot is the immutable state of the cluster at the start of a cycle.
type snapshot struct {
	infos                        []*nodeInfo              // by row; nil: no node
	rows                         map[string]nodetable.Row // by node name
	list, affinity, antiAffinity []fwk.NodeInfo
}

// follower updates the snapshot of a table.
type follower struct {
	state    tableState
	table    *nodetable.Table
	mark     uint64
	versions nodetable.Versions
	latest   *snapshot
}

func newFollower(table *nodetable.Table) *follower {
	f := &follower{table: table, latest: &snapshot{}}
	f.state.wrong = map[nodetable.Row]bool{}
	f.state.images.Store(&map[nodetable.Symbol]*fwk.ImageStateSummary{})
	return f
}

// take updates the snapshot. Unchanged rows keep their nodeInfo.
func (f *follower) take() *snapshot {
	t := f.table
	changed := t.ChangedRows(f.mark)
	f.state.mu.Lock()
	wrong := maps.Clone(f.state.wrong)
	clear(f.state.wrong)
	f.state.mu.Unlock()

	s := &snapshot{infos: make([]*nodeInfo, t.Rows()), rows: f.latest.rows}
	copy(s.infos, f.latest.infos)
	moved := t.Versions.Nodes != f.versions.Nodes || t.Versions.Labels != f.versions.Labels // the zone label orders the nodes
	if moved {
		s.rows = make(map[string]nodetable.Row, t.Len())
		for row := range s.infos {
			if !t.Alive().Has(nodetable.Row(row)) {
				s.infos[row] = nil
			} else {
				s.rows[t.Node(nodetable.Row(row)).Name.Value()] = nodetable.Row(row)
			}
		}
	}
	if t.Versions.Images != f.versions.Images {
		images := summaries(t)
		f.state.images.Store(&images)
	}
	f.mark, f.versions = t.Mark(), t.Versions
	if !s.update(f, changed, wrong) && !moved {
		return f.latest
	}
	s.arrange(t.Order())
	f.latest = s
	return s
}

// update makes the nodeInfos of changed rows, and of rows that a plugin has
// changed; false: there were none.
func (s *snapshot) update(f *follower, changed []nodetable.Row, wrong map[nodetable.Row]bool) (any bool) {
	for _, row := range slices.AppendSeq(slices.Clone(changed), maps.Keys(wrong)) {
		if !f.table.Alive().Has(row) {
			continue
		}
		node, pods, before := f.table.Node(row), f.table.PodsOn(row), s.infos[row]
		if !wrong[row] && before.shows(node, pods) {
			continue
		}
		delete(wrong, row) // rows may be listed twice
		s.infos[row] = newNodeInfo(&f.state, row, node, pods, before)
		any = true
	}
	return any
}

func (s *snapshot) arrange(order []nodetable.Row) {
	s.list = make([]fwk.NodeInfo, 0, len(order))
	for _, row := range order {
		info := s.infos[row]
		s.list = append(s.list, info)
		if len(info.withAffinity) > 0 {
			s.affinity = append(s.affinity, info)
		}
		if len(info.withAntiAffinity) > 0 {
			s.antiAffinity = append(s.antiAffinity, info)
		}
	}
}

// List has all nodes in the scheduler's order.
func (s *snapshot) List() ([]fwk.NodeInfo, error) { return s.list, nil }

// HavePodsWithAffinityList are the nodes with pods that have inter-pod affinity
// terms.
func (s *snapshot) HavePodsWithAffinityList() ([]fwk.NodeInfo, error) { return s.affinity, nil }

func (s *snapshot) HavePodsWithRequiredAntiAffinityList() ([]fwk.NodeInfo, error) {
	return s.antiAffinity, nil
}

// HavePodsWithRequiredNonHostScopedAntiAffinityList is empty without the feature
// InterPodAffinityHostnameFastPath.
func (s *snapshot) HavePodsWithRequiredNonHostScopedAntiAffinityList() ([]fwk.NodeInfo, error) {
	return nil, nil
}

// Get finds a node by name.
func (s *snapshot) Get(name string) (fwk.NodeInfo, error) {
	row, found := s.rows[name]
	if !found {
		return nil, fmt.Errorf("nodeinfo not found for node name %q", name)
	}
	return s.infos[row], nil
}

// IsPVCUsedByPods reports whether a pod on any node uses a claim, by
// namespace/name.
func (s *snapshot) IsPVCUsedByPods(key string) bool {
	return slices.ContainsFunc(s.infos, func(n *nodeInfo) bool { return n != nil && n.claims[key] > 0 })
}

// shared is a snapshot as a fwk.SharedLister.
type shared struct {
	*snapshot
	noGroups
}

func (s shared) NodeInfos() fwk.NodeInfoLister       { return s.snapshot }
func (s shared) StorageInfos() fwk.StorageInfoLister { return s.snapshot }

func (s shared) StartMutations() error                        { return errNoGroups }
func (s shared) EndMutations() error                          { return errNoGroups }
func (s shared) AddPod(fwk.PodInfo, string) error             { return errNoGroups }
func (s shared) RemovePod(klog.Logger, *v1.Pod, string) error { return errNoGroups }
