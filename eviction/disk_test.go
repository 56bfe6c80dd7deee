package eviction_test

import (
	"testing"

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
		if got := eviction.Rank(&eviction.Config{Layout: test.layout}, test.signal, []eviction.Candidate{c}, nil)[0].Usage; got != test.want {
			t.Errorf("%v on %v: got %d, want %d", test.signal, test.layout, got, test.want)
		}
	}
}
