package nodestatus_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/nodestatus"
)

// rule: M.116
func TestEvictedPodsBeyondTheirBoundsAreSurplus(t *testing.T) {
	pod := func(uid, owner types.UID, ago time.Duration) nodestatus.EvictedPod {
		return nodestatus.EvictedPod{UID: uid, Owner: owner, At: noon.Add(-ago)}
	}
	pods := []nodestatus.EvictedPod{
		pod("a1", "a", 10*time.Minute), pod("a2", "a", time.Minute), pod("a3", "a", 5*time.Minute), pod("b1", "b", time.Hour),
		pod("bare1", "", 2*time.Hour), pod("bare2", "", time.Second), pod("a4", "a", time.Minute),
	}
	for name, test := range map[string]struct {
		bounds nodestatus.EvictedPods
		want   []types.UID
	}{
		"without bounds":                  {nodestatus.EvictedPods{}, nil},
		"older than the TTL":              {nodestatus.EvictedPods{TTL: time.Hour}, []types.UID{"bare1", "b1"}},
		"just younger than the TTL":       {nodestatus.EvictedPods{TTL: time.Hour + 1}, []types.UID{"bare1"}},
		"the newest of an owner stay":     {nodestatus.EvictedPods{PerOwner: 2}, []types.UID{"a1", "a3"}},
		"of the same age the largest uid": {nodestatus.EvictedPods{PerOwner: 1}, []types.UID{"a1", "a3", "a2"}},
		"both":                            {nodestatus.EvictedPods{TTL: 2 * time.Hour, PerOwner: 3}, []types.UID{"bare1", "a1"}},
	} {
		var got []types.UID
		for _, p := range test.bounds.Surplus(pods, noon) {
			got = append(got, p.UID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
