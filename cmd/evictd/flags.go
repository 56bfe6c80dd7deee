package main

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/cli"
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

// parse writes the flags over what the configuration file has, if there is one, and checks what that comes to.
func (o *overrides) parse(path string, text []byte) (file config.EvictdConfiguration, compiled config.Config, err error) {
	var faults error
	if path != "" {
		file, err = config.Load(text)
		faults = cli.InFile(path, err)
	}
	o.apply(&file)
	compiled, err = daemon.Check(&file)
	return file, compiled, errors.Join(faults, o.name(path, err))
}

// begins is how a fault begins that names a flag or a field.
var begins = regexp.MustCompile(`^(--)?([a-zA-Z][a-zA-Z-]*)`)

// name has each fault of a configuration name the flag that was given, or else the file and its field.
func (o *overrides) name(path string, err error) error {
	known := fields()
	return cli.Rename(err, func(fault string) string {
		found := begins.FindStringSubmatch(fault)
		if found == nil {
			return fault
		}
		flag, rest := flagOf(found[2]), fault[len(found[0]):]
		switch field := known[flag]; {
		case field == "":
			return fault
		case o.flags.Changed(flag):
			return "--" + flag + rest
		case path != "":
			return path + ": " + field + rest
		}
		return fault
	})
}

// fields maps each field of the configuration file by the name that its flag has, or would have.
func fields() map[string]string {
	named := map[string]string{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.EvictdConfiguration]()) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			named[flagOf(name)] = name
		}
	}
	return named
}

// words are where a word of a field's name ends: TLSCert is tls-cert.
var words = regexp.MustCompile(`([a-z])([A-Z])|([A-Z])([A-Z][a-z])`)

// flagOf is the name of a field as its flag has it, and of a flag itself.
func flagOf(field string) string {
	return strings.ToLower(words.ReplaceAllString(field, "$1$3-$2$4"))
}

// entries is a flag of the kubelet's map grammar. Given again it adds to what it has.
type entries struct {
	parse  func(string) (map[string]string, error)
	text   string
	parsed map[string]string
}

func (e *entries) String() string { return e.text }
func (e *entries) Type() string   { return "map" }

func (e *entries) Set(text string) error {
	parsed, err := e.parse(text)
	if err != nil {
		return err
	}
	if e.parsed == nil {
		e.parsed = map[string]string{}
	}
	maps.Copy(e.parsed, parsed)
	e.text = strings.TrimPrefix(e.text+","+text, ",")
	return nil
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
