package main

import (
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction/config"
)

// overrides are flags that win over the configuration file: each that was
// given changes its field.
type overrides struct {
	flags *pflag.FlagSet
	set   map[string]func(*config.EvictdConfiguration)
}

// apply writes the flags that were given over the file.
func (o *overrides) apply(c *config.EvictdConfiguration) {
	o.flags.Visit(func(f *pflag.Flag) {
		if set := o.set[f.Name]; set != nil {
			set(c)
		}
	})
}

// entries is a flag of the kubelet's map grammar.
type entries struct {
	parse  func(string) (map[string]string, error)
	text   string
	parsed map[string]string
}

func (e *entries) String() string { return e.text }
func (e *entries) Type() string   { return "map" }

func (e *entries) Set(text string) (err error) {
	e.text = text
	e.parsed, err = e.parse(text)
	return err
}

// kubeletFlags adds the kubelet's eviction and reservation flags, in its
// grammar.
func kubeletFlags(flags *pflag.FlagSet) *overrides {
	o := &overrides{flags, map[string]func(*config.EvictdConfiguration){}}
	table := func(name, usage string, parse func(string) (map[string]string, error), field func(*config.EvictdConfiguration) *map[string]string) {
		value := &entries{parse: parse}
		flags.Var(value, name, usage)
		o.set[name] = func(c *config.EvictdConfiguration) { *field(c) = value.parsed }
	}
	table("eviction-hard", "hard thresholds, signal<value,...", config.ParseThresholds,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.EvictionHard })
	table("eviction-soft", "soft thresholds, signal<value,...", config.ParseThresholds,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.EvictionSoft })
	table("eviction-soft-grace-period", "grace of the soft thresholds, signal=duration,...", config.ParseSettings,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.EvictionSoftGracePeriod })
	table("eviction-minimum-reclaim", "what to free beyond a threshold, signal=value,...", config.ParseSettings,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.EvictionMinimumReclaim })
	table("system-reserved", "kept from pods for the system, resource=quantity,...", config.ParseSettings,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.SystemReserved })
	table("kube-reserved", "kept from pods for Kubernetes, resource=quantity,...", config.ParseSettings,
		func(c *config.EvictdConfiguration) *map[string]string { return &c.KubeReserved })

	maxGrace := flags.Int32("eviction-max-pod-grace-period", 0, "longest grace of a soft victim, seconds")
	o.set["eviction-max-pod-grace-period"] = func(c *config.EvictdConfiguration) { c.EvictionMaxPodGracePeriod = *maxGrace }
	o.duration("eviction-pressure-transition-period", "how long a condition outlives its cause (default 5m)",
		func(c *config.EvictdConfiguration) *metav1.Duration { return &c.EvictionPressureTransitionPeriod })
	o.duration("node-status-update-frequency", "how often the Node is compared with its wanted status (default 10s); changes are written at once",
		func(c *config.EvictdConfiguration) *metav1.Duration { return &c.NodeStatusUpdateFrequency })
	return o
}

func (o *overrides) duration(name, usage string, field func(*config.EvictdConfiguration) *metav1.Duration) {
	value := o.flags.Duration(name, 0, usage)
	o.set[name] = func(c *config.EvictdConfiguration) { field(c).Duration = *value }
}

func (o *overrides) text(name, usage string, field func(*config.EvictdConfiguration) *string) {
	value := o.flags.String(name, "", usage)
	o.set[name] = func(c *config.EvictdConfiguration) { *field(c) = *value }
}

func (o *overrides) truth(name, usage string, field func(*config.EvictdConfiguration) *bool) {
	value := o.flags.Bool(name, false, usage)
	o.set[name] = func(c *config.EvictdConfiguration) { *field(c) = *value }
}
