package eviction_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// rule: M.17
func TestWhatIsDeletedAndOpenIsHeldWhereLocalVolumesAre(t *testing.T) {
	c := eviction.Candidate{Pod: &eviction.Pod{UID: "1"}, Usage: &stats.Pod{
		Unlinked: stats.Volume{Used: stats.Known(7 * gi), Inodes: stats.Known(3)},
		Files:    stats.Volume{Used: stats.Known(gi), Inodes: stats.Known(2)},
	}}
	for _, test := range []struct {
		signal eviction.Signal
		layout eviction.Layout
		want   int64
	}{
		{eviction.NodeFsAvailable, eviction.SharedFs, 7 * gi},
		{eviction.NodeFsInodesFree, eviction.SharedFs, 3},
		{eviction.ImageFsAvailable, eviction.SharedFs, 7 * gi},
		{eviction.NodeFsAvailable, eviction.ImageFs, 7 * gi},
		{eviction.ImageFsAvailable, eviction.ImageFs, 0},
		{eviction.ContainerFsAvailable, eviction.SplitFs, 7 * gi},
		{eviction.ContainerFsAvailable, eviction.SeparateFs, 0},
	} {
		if got := eviction.Rank(test.signal, test.layout, []eviction.Candidate{c}, nil)[0].Usage; got != test.want {
			t.Errorf("%v on %v: got %d, want %d", test.signal, test.layout, got, test.want)
		}
	}
}

// rule: 1.44
func TestAPodsOwnFilesCountForItsLimit(t *testing.T) {
	n, limit := newSmallNode(), resource.MustParse("1Gi")
	n.pod.StorageLimit, n.pod.Volumes = &limit, nil
	half := stats.Volume{Used: stats.Known(gi / 2)}
	for name, test := range map[string]struct {
		files, unlinked stats.Volume
		over            bool
	}{
		"files alone":          {files: half},
		"deleted alone":        {unlinked: half},
		"as much as the limit": {half, half, false},
		"more":                 {stats.Volume{Used: stats.Known(gi/2 + 1)}, half, true},
	} {
		n.state, n.usage.Files, n.usage.Unlinked = eviction.State{}, test.files, test.unlinked
		d := n.pass(eviction.Housekeeping, 0, 9*gi, noon)
		if over := len(d.Evictions) == 1 && d.Evictions[0].Signal == eviction.PodEphemeralStorageLimit; over != test.over {
			t.Errorf("%s: got %+v", name, d.Evictions)
		}
	}
}
