package config

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
)

const (
	defaultReclaimStep     = 32 << 20
	defaultReclaimAttempts = 16
	// leastReclaimStep and mostReclaimStep bound a write to memory.reclaim, bytes: a larger one may
	// take the kernel seconds, in which the pod's refaults are not looked at.
	leastReclaimStep, mostReclaimStep = 1 << 20, 256 << 20
	mostReclaimAttempts               = 1000
	// longestThrottle bounds how long a pod is throttled.
	longestThrottle = 5 * time.Second
)

// memorySteps reads what is done about the memory of pods before one is evicted. It is called once the thresholds
// are parsed.
func (c *compiler) memorySteps(file *EvictdConfiguration, into *eviction.Config) {
	r := eviction.MemoryReclaims{Step: defaultReclaimStep, Attempts: defaultReclaimAttempts}
	given := file.MemoryReclaimBudget != ""
	if file.MemoryReclaimStep != "" {
		r.Step = c.bytesWithin("memoryReclaimStep", file.MemoryReclaimStep, leastReclaimStep, mostReclaimStep)
	}
	if n := file.MemoryReclaimAttempts; n != 0 {
		if r.Attempts = int(n); n < 0 || n > mostReclaimAttempts {
			c.invalid(c.at("memoryReclaimAttempts"), n, "must be between 1 and 1000")
		}
	}
	if given {
		r.Budget = c.bytesWithin("memoryReclaimBudget", file.MemoryReclaimBudget, leastReclaimStep, 1<<50)
		into.MemoryReclaims = r
	}
	if !given && r.Step != defaultReclaimStep {
		c.warn(c.at("memoryReclaimStep"), "has no effect without memoryReclaimBudget")
	}
	if !given && r.Attempts != defaultReclaimAttempts {
		c.warn(c.at("memoryReclaimAttempts"), "has no effect without memoryReclaimBudget")
	}
	into.ThrottlePeriod = file.MemoryThrottlePeriod.Duration
	if into.ThrottlePeriod < 0 || into.ThrottlePeriod > longestThrottle {
		c.invalid(c.at("memoryThrottlePeriod"), into.ThrottlePeriod.String(), "must be between 0s and "+longestThrottle.String())
	}
	has := func(hard bool) bool {
		return slices.ContainsFunc(c.settings, func(s setting) bool { return ofMemory(s.Signal) && s.Hard() == hard })
	}
	if given && !has(false) {
		c.warn(c.at("memoryReclaimBudget"), "has no effect: memory.available has no soft threshold")
	}
	if into.ThrottlePeriod > 0 && !has(true) {
		c.warn(c.at("memoryThrottlePeriod"), "has no effect: memory.available has no hard threshold")
	}
}

// Values of containerPressure.
const (
	pressureEvict   = "evict"
	pressureRestart = "restart"
)

// defaultResizeInterval is longer than most programs take to grow by half.
const defaultResizeInterval = 5 * time.Minute

const (
	defaultRestartGrace   = 10 * time.Second
	defaultRestartBackOff = 10 * time.Minute
	// leastRestartBackOff is longer than a kubelet takes to start a container.
	leastRestartBackOff = 30 * time.Second
)

// restarts reads when a container is restarted in place of the eviction of its pod.
func (c *compiler) restarts(file *EvictdConfiguration) eviction.Restarts {
	r := eviction.Restarts{
		Grace:   c.duration("containerRestartGracePeriod", file.ContainerRestartGracePeriod.Duration, defaultRestartGrace),
		BackOff: c.duration("containerRestartBackOff", file.ContainerRestartBackOff.Duration, defaultRestartBackOff),
	}
	if r.BackOff >= 0 && r.BackOff < leastRestartBackOff {
		c.invalid(c.at("containerRestartBackOff"), r.BackOff.String(), "must be at least "+leastRestartBackOff.String())
	}
	switch mode := file.ContainerPressure; {
	case mode == pressureRestart:
		if !slices.ContainsFunc(c.settings, func(s setting) bool { return ofMemory(s.Signal) }) {
			c.warn(c.at("containerPressure"), "has no effect: memory.available has no threshold")
		}
		return r
	case mode != "" && mode != pressureEvict:
		c.faults = append(c.faults, field.NotSupported(c.at("containerPressure"), mode, []string{pressureEvict, pressureRestart}))
	case r.Grace != defaultRestartGrace:
		c.warn(c.at("containerRestartGracePeriod"), "has no effect without containerPressure: restart")
	case r.BackOff != defaultRestartBackOff:
		c.warn(c.at("containerRestartBackOff"), "has no effect without containerPressure: restart")
	}
	return eviction.Restarts{}
}

// ofMemory says whether steps are taken for a signal: for memory.stall none is.
func ofMemory(s eviction.Signal) bool {
	return s != eviction.MemoryStall && s.Resource() == v1.ResourceMemory
}

// bytesWithin reads a quantity of bytes.
func (c *compiler) bytesWithin(name, text string, least, most int64) int64 {
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		c.invalid(c.at(name), text, "not a quantity: "+err.Error())
		return least
	case q.CmpInt64(least) < 0 || q.CmpInt64(most) > 0:
		show := eviction.MemoryAvailable.Quantity
		c.invalid(c.at(name), text, "must be between "+show(least)+" and "+show(most))
	}
	return q.Value()
}
