package eviction_test

import (
	"testing"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/stats"
)

// A container that is being restarted may not be among those of a pod that has changed since, or of a reading.
func TestMemoryOfAContainerThatWasNotMeasuredIsUnknown(t *testing.T) {
	pod := &eviction.Pod{Containers: []eviction.Container{{Name: "a"}, {Name: "b"}}}
	c := eviction.Candidate{Pod: pod, Usage: &stats.Pod{Containers: []stats.Container{{Memory: stats.Known(5)}}}}
	for name, want := range map[string]stats.Amount{"a": stats.Known(5), "b": {}, "gone": {}} {
		if got := c.ContainerMemory(name); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
