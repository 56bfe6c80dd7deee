package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/stats"
)

// Config is a configuration with its defaults and parsed values.
type Config struct {
	// Eviction has the configured thresholds, in order of evaluation, with those of
	// allocatableMemory.available copied; eviction.New completes it once the layout of
	// the disks is known.
	Eviction eviction.Config
	// MemoryModel chooses which memory counts as available.
	MemoryModel stats.MemoryModel
	// SystemReserved and KubeReserved are reserved from pods.
	SystemReserved, KubeReserved v1.ResourceList
	// EnforcePods says whether all pods together are limited to allocatable.
	EnforcePods bool
	// Reclaim says what the node removes before it evicts a pod.
	Reclaim reclaim.Policy
	// NodeStatusUpdateFrequency is how often conditions are reconciled.
	NodeStatusUpdateFrequency time.Duration
	// EvictedPodTTL and EvictedPodsPerOwner bound the evicted pods that the API server keeps; zero
	// is no bound.
	EvictedPodTTL       time.Duration
	EvictedPodsPerOwner int32
	// Warnings are of valid settings that are probably mistakes.
	Warnings []string

	settings []setting
}

// setting is a configured threshold and its field.
type setting struct {
	path *field.Path
	eviction.Threshold
}

// defaultHard are the default hard thresholds (Linux).
var defaultHard = map[string]string{
	"memory.available":   "100Mi",
	"nodefs.available":   "10%",
	"nodefs.inodesFree":  "5%",
	"imagefs.available":  "15%",
	"imagefs.inodesFree": "5%",
}

const (
	defaultTransitionPeriod = 5 * time.Minute
	defaultStatusFrequency  = 10 * time.Second
	defaultWarningLead      = 5 * time.Second
	defaultWarningInterval  = 30 * time.Second
)

// compiler collects the faults and warnings of one configuration.
type compiler struct {
	root     *field.Path
	kubelets bool // the configuration is the kubelet's
	settings []setting
	faults   field.ErrorList
	warnings []string
}

func (c *compiler) at(name string) *field.Path { return c.root.Child(name) }

func (c *compiler) invalid(path *field.Path, value any, why string) {
	c.faults = append(c.faults, field.Invalid(path, value, why))
}

func (c *compiler) warn(path *field.Path, format string, args ...any) {
	c.warnings = append(c.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// Compile parses a configuration. The error is a field.ErrorList's aggregate of every
// fault; root, which may be nil, is the prefix of each field's path.
func Compile(file *EvictdConfiguration, root *field.Path) (Config, error) {
	c := &compiler{root: root, kubelets: file.Kind == kubeletKind}
	config := Config{
		Eviction: eviction.Config{
			MaxPodGracePeriod:             int64(file.EvictionMaxPodGracePeriod),
			PressureTransitionPeriod:      c.duration("evictionPressureTransitionPeriod", file.EvictionPressureTransitionPeriod.Duration, defaultTransitionPeriod),
			LocalStorageCapacityIsolation: file.LocalStorageCapacityIsolation == nil || *file.LocalStorageCapacityIsolation,
		},
		SystemReserved:            c.reserved("systemReserved", file.SystemReserved),
		KubeReserved:              c.reserved("kubeReserved", file.KubeReserved),
		EnforcePods:               c.enforcePods(file),
		Reclaim:                   c.reclaimPolicy(file),
		NodeStatusUpdateFrequency: c.duration("nodeStatusUpdateFrequency", file.NodeStatusUpdateFrequency.Duration, defaultStatusFrequency),
		EvictedPodTTL:             c.duration("evictedPodTTL", file.EvictedPodTTL.Duration, 0),
		EvictedPodsPerOwner:       file.EvictedPodsPerOwner,
	}
	if file.EvictionMaxPodGracePeriod < 0 {
		c.invalid(c.at("evictionMaxPodGracePeriod"), file.EvictionMaxPodGracePeriod, "must not be negative; the kubelet would kill at once")
	}
	if file.EvictedPodsPerOwner < 0 {
		c.invalid(c.at("evictedPodsPerOwner"), file.EvictedPodsPerOwner, "must not be negative")
	}
	if ways := []string{"one", "enough"}; file.VictimsPerPass != "" && !slices.Contains(ways, file.VictimsPerPass) {
		c.faults = append(c.faults, field.NotSupported(c.at("victimsPerPass"), file.VictimsPerPass, ways))
	}
	config.Eviction.WithdrawsSoft = file.SoftEviction == "request"
	config.Eviction.EnoughVictims = file.VictimsPerPass == "enough"
	config.Eviction.PreferenceNamespaces = c.namespaces("evictionPreferenceNamespaces", file.EvictionPreferenceNamespaces)
	config.Eviction.Warnings = eviction.Warnings{
		Namespaces: c.namespaces("warningNamespaces", file.WarningNamespaces),
		Lead:       c.duration("warningLead", file.WarningLead.Duration, defaultWarningLead),
		Interval:   c.duration("warningInterval", file.WarningInterval.Duration, defaultWarningInterval),
	}
	config.Eviction.Resizes = eviction.Resizes{
		Namespaces: c.namespaces("resizeNamespaces", file.ResizeNamespaces),
		Interval:   c.duration("resizeInterval", file.ResizeInterval.Duration, defaultResizeInterval),
	}
	model, ok := stats.ParseMemoryModel(file.MemoryModel)
	if !ok {
		c.faults = append(c.faults, field.NotSupported(c.at("memoryModel"), file.MemoryModel, stats.MemoryModels()))
	}
	config.MemoryModel = model
	c.thresholds(file, config.EnforcePods)
	c.memorySteps(file, &config.Eviction)
	c.outside(file.Outside)
	config.Eviction.Restarts = c.restarts(file)
	c.stalls(file, &config.Eviction)
	c.lint(file)
	for _, s := range c.settings {
		config.Eviction.Thresholds = append(config.Eviction.Thresholds, s.Threshold)
	}
	eviction.Order(config.Eviction.Thresholds)
	config.Warnings, config.settings = slices.Concat(file.warnings, c.warnings), c.settings
	return config, c.faults.ToAggregate()
}

// duration is as with the kubelet: zero is the default. A negative one is a fault.
func (c *compiler) duration(name string, given, otherwise time.Duration) time.Duration {
	if given < 0 {
		c.invalid(c.at(name), given.String(), "must not be negative")
	}
	if given == 0 {
		return otherwise
	}
	return given
}

// namespaces checks names of namespaces.
func (c *compiler) namespaces(list string, names []string) []string {
	for i, name := range names {
		path := c.at(list).Index(i)
		for _, why := range validation.IsDNS1123Label(name) {
			c.invalid(path, name, why)
		}
		if slices.Contains(names[:i], name) {
			c.faults = append(c.faults, field.Duplicate(path, name))
		}
	}
	return names
}

// thresholds parses the thresholds, and copies the hard ones of memory.available where
// all pods together are limited to allocatable.
func (c *compiler) thresholds(file *EvictdConfiguration, enforcePods bool) {
	reclaims := map[eviction.Signal]eviction.Value{}
	for s, text := range c.signals("evictionMinimumReclaim", file.EvictionMinimumReclaim) {
		parse := c.reclaim
		if s == eviction.MemoryStall {
			parse = c.stallReclaim
		}
		reclaims[s] = parse(c.at("evictionMinimumReclaim").Key(s.String()), text)
	}
	graces := map[eviction.Signal]time.Duration{}
	for s, text := range c.signals("evictionSoftGracePeriod", file.EvictionSoftGracePeriod) {
		graces[s] = c.grace(c.at("evictionSoftGracePeriod").Key(s.String()), text)
	}

	add := func(list string, s eviction.Signal, text string, grace time.Duration) {
		if disabled(text) {
			return
		}
		path := c.at(list).Key(s.String())
		t := eviction.Threshold{Signal: s, Grace: grace, MinReclaim: reclaims[s]}
		if s == eviction.MemoryStall {
			t.Value = c.stall(path, text, t.MinReclaim)
		} else {
			t.Value = c.value(path, s, text)
		}
		c.settings = append(c.settings, setting{path, t})
		if s == eviction.MemoryAvailable && t.Hard() && enforcePods {
			t.Signal = eviction.AllocatableMemoryAvailable
			c.settings = append(c.settings, setting{path, t})
		}
	}
	for s, text := range c.signals("evictionHard", c.hard(file)) {
		add("evictionHard", s, text, 0)
	}
	for s, text := range c.signals("evictionSoft", file.EvictionSoft) {
		grace, given := graces[s]
		if !given && !disabled(text) {
			c.faults = append(c.faults, field.Required(c.at("evictionSoftGracePeriod").Key(s.String()), "a soft threshold needs a grace period"))
			continue
		}
		if given && grace == 0 && !disabled(text) {
			c.warn(c.at("evictionSoftGracePeriod").Key(s.String()), "a grace period of 0s makes the threshold a hard one")
		}
		add("evictionSoft", s, text, grace)
	}
}

// hard merges the hard thresholds with the defaults as the kubelet does: all defaults
// where the map is nil, none otherwise, unless mergeDefaultEvictionSettings is set.
func (c *compiler) hard(file *EvictdConfiguration) map[string]string {
	if file.EvictionHard == nil {
		return defaultHard
	}
	merged := maps.Clone(file.EvictionHard)
	var left []string
	for _, name := range slices.Sorted(maps.Keys(defaultHard)) {
		if _, given := merged[name]; given {
			continue
		}
		if file.MergeDefaultEvictionSettings != nil && *file.MergeDefaultEvictionSettings {
			merged[name] = defaultHard[name]
		} else {
			left = append(left, name)
		}
	}
	if len(merged) > 0 && len(left) > 0 {
		c.warn(c.at("evictionHard"), "%s: no hard threshold, because giving one drops the other defaults; set mergeDefaultEvictionSettings to keep them", strings.Join(left, ", "))
	}
	return merged
}

// signals iterates over a map of thresholds in the order of signals. An unknown signal
// is a fault.
func (c *compiler) signals(list string, entries map[string]string) func(func(eviction.Signal, string) bool) {
	return func(yield func(eviction.Signal, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			s, err := eviction.ParseSignal(name)
			if err == nil && c.kubelets && !s.Kubelets() {
				err = fmt.Errorf("unsupported eviction signal %q: only an %s may have it", name, Kind)
			}
			if err != nil {
				c.invalid(c.at(list).Key(name), entries[name], err.Error())
			} else if !yield(s, entries[name]) {
				return
			}
		}
	}
}

func (c *compiler) grace(path *field.Path, text string) time.Duration {
	grace, err := time.ParseDuration(text)
	switch {
	case err != nil:
		c.invalid(path, text, "not a duration such as 30s or 2m")
	case grace < 0:
		c.invalid(path, text, "must not be negative")
	}
	return grace
}

// lint warns about settings that the kubelet ignores silently.
func (c *compiler) lint(file *EvictdConfiguration) {
	lists := map[string]map[string]string{
		"evictionHard": file.EvictionHard, "evictionSoft": file.EvictionSoft,
		"evictionSoftGracePeriod": file.EvictionSoftGracePeriod, "evictionMinimumReclaim": file.EvictionMinimumReclaim,
	}
	for _, s := range eviction.Signals() {
		name := s.String()
		if s == eviction.ContainerFsAvailable || s == eviction.ContainerFsInodesFree {
			for list, entries := range lists {
				if _, given := entries[name]; given {
					c.warn(c.at(list).Key(name), "ignored: containerfs takes over the threshold of the filesystem that writable layers are on")
				}
			}
			continue
		}
		own := func(t setting) bool { return t.Signal == s }
		if _, given := file.EvictionMinimumReclaim[name]; given && !slices.ContainsFunc(c.settings, own) {
			c.warn(c.at("evictionMinimumReclaim").Key(name), "has no effect: the signal has no threshold")
		}
		if _, soft := file.EvictionSoft[name]; !soft {
			if _, given := file.EvictionSoftGracePeriod[name]; given {
				c.warn(c.at("evictionSoftGracePeriod").Key(name), "has no effect: the signal has no soft threshold")
			}
		}
	}
	for _, soft := range c.settings {
		for _, hard := range c.settings {
			if !soft.Hard() && hard.Hard() && soft.Signal == hard.Signal && below(soft.Value, hard.Value) {
				side := "below"
				if soft.Signal == eviction.MemoryStall {
					side = "above"
				}
				c.warn(soft.path, "%s is %s the hard threshold %s, which always acts first", soft.FormatValue(), side, hard.FormatValue())
			}
		}
	}
	slices.Sort(c.warnings)
}

// below compares two values of the same unit; amounts against fractions do not
// compare without a capacity.
func below(a, b eviction.Value) bool {
	if (a.Fraction == 0) != (b.Fraction == 0) {
		return false
	}
	return a.Amount < b.Amount || a.Fraction < b.Fraction
}

// reservable are the resources that can be reserved.
var reservable = []string{string(v1.ResourceCPU), string(v1.ResourceEphemeralStorage), string(v1.ResourceMemory), "pid"}

func (c *compiler) reserved(list string, entries map[string]string) v1.ResourceList {
	reserved := v1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		path := c.at(list).Key(name)
		if !slices.Contains(reservable, name) {
			c.faults = append(c.faults, field.NotSupported(path, name, reservable))
			continue
		}
		q, err := resource.ParseQuantity(entries[name])
		switch {
		case err != nil:
			c.invalid(path, entries[name], "not a quantity: "+err.Error())
		case q.Sign() < 0:
			c.invalid(path, entries[name], "must not be negative")
		}
		reserved[v1.ResourceName(name)] = q
	}
	return reserved
}

// Values of enforceNodeAllocatable.
const (
	enforcePods               = "pods"
	enforceSystem             = "system-reserved"
	enforceSystemCompressible = "system-reserved-compressible"
	enforceKube               = "kube-reserved"
	enforceKubeCompressible   = "kube-reserved-compressible"
	enforceNone               = "none"
)

func (c *compiler) enforcePods(file *EvictdConfiguration) bool {
	if file.EnforceNodeAllocatable == nil {
		return true
	}
	path := c.at("enforceNodeAllocatable")
	allowed := []string{enforceKube, enforceKubeCompressible, enforceNone, enforcePods, enforceSystem, enforceSystemCompressible}
	given := map[string]bool{}
	for i, name := range file.EnforceNodeAllocatable {
		if !slices.Contains(allowed, name) {
			c.faults = append(c.faults, field.NotSupported(path.Index(i), name, allowed))
		}
		if given[name] {
			c.faults = append(c.faults, field.Duplicate(path.Index(i), name))
		}
		given[name] = true
	}
	if given[enforceNone] && len(given) > 1 {
		c.invalid(path, file.EnforceNodeAllocatable, "none stands alone")
	}
	for _, pair := range []struct{ whole, compressible, field, cgroup string }{
		{enforceSystem, enforceSystemCompressible, "systemReservedCgroup", file.SystemReservedCgroup},
		{enforceKube, enforceKubeCompressible, "kubeReservedCgroup", file.KubeReservedCgroup},
	} {
		if given[pair.whole] && given[pair.compressible] {
			c.invalid(path, file.EnforceNodeAllocatable, pair.whole+" and "+pair.compressible+" exclude each other")
		}
		if (given[pair.whole] || given[pair.compressible]) && pair.cgroup == "" {
			c.faults = append(c.faults, field.Required(c.at(pair.field), "needed to enforce what enforceNodeAllocatable names"))
		}
	}
	return given[enforcePods]
}
