package config

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

const (
	defaultStallWindow = 10 * time.Second
	// leastStallWindow and mostStallWindow bound the window: a shorter one is a few waits for a disk, and in a
	// longer one a node is unusable before anything is done.
	leastStallWindow, mostStallWindow = time.Second, time.Minute
)

// stall parses a threshold of memory.stall: the share of the window in which all tasks waited for memory, above
// which it acts. It has to end above 0%.
func (c *compiler) stall(path *field.Path, text string, reclaim eviction.Value) eviction.Value {
	share, err := eviction.ParseShare(text)
	switch {
	case err != nil:
		c.invalid(path, text, "not a percentage such as 40%: the share of memoryStallWindow in which all tasks wait for memory")
	case share == 0:
		c.invalid(path, text, "must be above 0%; write 0% to disable the threshold")
	case float64(share)/10_000 <= float64(reclaim.Fraction):
		c.invalid(c.at("evictionMinimumReclaim").Key(eviction.MemoryStall.String()), eviction.Share(reclaim.Fraction*10_000+0.5).String(), "must be less than the threshold, "+text)
	}
	return share.Value()
}

// stallReclaim parses how far below its threshold a stall ends.
func (c *compiler) stallReclaim(path *field.Path, text string) eviction.Value {
	share, err := eviction.ParseShare(text)
	if err != nil {
		c.invalid(path, text, "not a percentage such as 5%")
	}
	return eviction.Value{Fraction: float32(share) / 10_000}
}

// stalls reads how stalls are measured. It is called once the thresholds are parsed.
func (c *compiler) stalls(file *EvictdConfiguration, into *eviction.Config) {
	window := c.duration("memoryStallWindow", file.MemoryStallWindow.Duration, defaultStallWindow)
	if window < leastStallWindow || window > mostStallWindow {
		c.invalid(c.at("memoryStallWindow"), window.String(), "must be between 1s and 1m")
	}
	var some eviction.Share
	if file.MemoryStallSome != "" {
		var err error
		if some, err = eviction.ParseShare(file.MemoryStallSome); err != nil {
			c.invalid(c.at("memoryStallSome"), file.MemoryStallSome, "not a percentage such as 60%")
		}
	}
	has := false
	for i := range c.settings {
		if t := &c.settings[i].Threshold; t.Signal == eviction.MemoryStall {
			has, t.Some = true, some
		}
	}
	if has {
		into.MemoryStallWindow = window
		return
	}
	for name, given := range map[string]bool{"memoryStallWindow": window != defaultStallWindow, "memoryStallSome": file.MemoryStallSome != ""} {
		if given {
			c.warn(c.at(name), "has no effect: memory.stall has no threshold")
		}
	}
}
