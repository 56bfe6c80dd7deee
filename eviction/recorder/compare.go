package recorder

import (
	"cmp"
	"slices"
	"time"
)

// Comparison is an eviction by evictd beside the one by the kubelet that it is instead of; one of them is
// nil where only the other has evicted.
type Comparison struct {
	Evictd  *Eviction `json:"evictd,omitempty"`
	Kubelet *Eviction `json:"kubelet,omitempty"`
}

// samePressure is how far apart evictions of two pods are for the same pressure: a condition lasts five
// minutes by default.
const samePressure = 5 * time.Minute

// Compare pairs evictions, oldest first: those of the same pod, then those of other pods for the
// same resource, each with the nearest in time.
func Compare(all []Eviction) []Comparison {
	var pairs []Comparison
	var kubelets []*Eviction
	for i := range all {
		if e := &all[i]; e.By == ByEvictd {
			pairs = append(pairs, Comparison{Evictd: e})
		} else {
			kubelets = append(kubelets, e)
		}
	}
	kubelets = slices.DeleteFunc(kubelets, func(k *Eviction) bool {
		for i := range pairs {
			if pairs[i].Evictd.UID == k.UID {
				pairs[i].Kubelet = k
				return true
			}
		}
		return false
	})
	for _, k := range kubelets {
		var nearest *Comparison
		for i := range pairs {
			p := &pairs[i]
			if p.Kubelet != nil || p.Evictd == nil || p.Evictd.Resource != k.Resource || apart(p.Evictd, k) > samePressure {
				continue
			}
			if nearest == nil || apart(p.Evictd, k) < apart(nearest.Evictd, k) {
				nearest = p
			}
		}
		if nearest == nil {
			pairs = append(pairs, Comparison{Kubelet: k})
		} else {
			nearest.Kubelet = k
		}
	}
	slices.SortStableFunc(pairs, func(a, b Comparison) int { return a.first().Compare(b.first()) })
	return pairs
}

func apart(a, b *Eviction) time.Duration { return a.At.Sub(b.At.Time).Abs() }

// first is when the first of both has evicted.
func (c *Comparison) first() time.Time {
	e, k := cmp.Or(c.Evictd, c.Kubelet), cmp.Or(c.Kubelet, c.Evictd)
	if k.At.Before(e.At.Time) {
		return k.At.Time
	}
	return e.At.Time
}

// Earlier is how much sooner evictd evicts, negative where the kubelet does, and zero where only one of them
// does. It is exact to the second, as the kubelet's time is.
func (c *Comparison) Earlier() time.Duration {
	if c.Evictd == nil || c.Kubelet == nil {
		return 0
	}
	return c.Kubelet.At.Sub(c.Evictd.At.Truncate(time.Second))
}
