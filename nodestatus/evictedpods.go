package nodestatus

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// EvictedPods bounds the evicted pods that the API server keeps. Zero is no bound.
type EvictedPods struct {
	TTL time.Duration
	// PerOwner counts the pods of one controlling owner.
	PerOwner int32
}

// EvictedPod is a pod that was reported as evicted, at an instant. Owner is the uid of its
// controlling owner, empty where it has none.
type EvictedPod struct {
	UID             types.UID
	Namespace, Name string
	Owner           types.UID
	At              time.Time
}

// Surplus are the pods beyond the bounds: those that were reported longer ago than the TTL, and the
// oldest of an owner that has more than PerOwner. The order is by time, then by uid.
func (b EvictedPods) Surplus(pods []EvictedPod, now time.Time) (surplus []EvictedPod) {
	newestFirst := slices.SortedFunc(slices.Values(pods), func(a, b EvictedPod) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.UID, a.UID)) })
	kept := map[types.UID]int32{}
	for _, p := range newestFirst {
		expired := b.TTL > 0 && now.Sub(p.At) >= b.TTL
		more := b.PerOwner > 0 && p.Owner != "" && kept[p.Owner] >= b.PerOwner
		if expired || more {
			surplus = append(surplus, p)
		} else {
			kept[p.Owner]++
		}
	}
	slices.Reverse(surplus)
	return surplus
}
