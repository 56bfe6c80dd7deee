package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

const (
	defaultParallelism    = 16
	defaultInitialBackoff = 1  // seconds
	defaultMaxBackoff     = 10 // seconds
	defaultLeaseDuration  = 15 * time.Second
	defaultRenewDeadline  = 10 * time.Second
	defaultRetryPeriod    = 2 * time.Second
	leaseLock             = "leases"
	defaultContentType    = "application/vnd.kubernetes.protobuf"
	defaultQPS            = 50
	defaultBurst          = 100
)

// compiler collects the faults and warnings of a configuration.
type compiler struct {
	plugins  []Plugin
	faults   []error
	warnings []string
}

func (c *compiler) invalid(path *field.Path, value any, why string) {
	c.faults = append(c.faults, field.Invalid(path, value, why))
}

// check adds a fault unless ok.
func (c *compiler) check(ok bool, path *field.Path, value any, why string) {
	if !ok {
		c.invalid(path, value, why)
	}
}

func (c *compiler) warn(path *field.Path, format string, args ...any) {
	c.warnings = append(c.warnings, path.String()+": "+fmt.Sprintf(format, args...))
}

// Compile completes and checks a configuration; the empty one becomes
// kube-scheduler's default profile. plugins are all that a profile may name, the default
// ones in order. The error joins every fault.
func Compile(file *File, plugins []Plugin) (Config, error) {
	c := &compiler{plugins: plugins, warnings: slices.Clone(file.warnings)}
	initial := ptr.Deref(file.PodInitialBackoffSeconds, defaultInitialBackoff)
	maximum := ptr.Deref(file.PodMaxBackoffSeconds, defaultMaxBackoff)
	config := Config{
		Parallelism:       int(ptr.Deref(file.Parallelism, defaultParallelism)),
		PodInitialBackoff: time.Duration(initial) * time.Second,
		PodMaxBackoff:     time.Duration(maximum) * time.Second,
		LeaderElection:    c.leaderElection(field.NewPath("leaderElection"), &file.LeaderElection),
		ClientConnection:  c.clientConnection(field.NewPath("clientConnection"), &file.ClientConnection),
		Profiling:         ptr.Deref(file.EnableProfiling, false),
	}
	c.check(config.Parallelism > 0, field.NewPath("parallelism"), config.Parallelism, "should be an integer value greater than zero")
	c.check(initial > 0, field.NewPath("podInitialBackoffSeconds"), initial, "must be greater than 0")
	c.check(maximum >= initial, field.NewPath("podMaxBackoffSeconds"), maximum, "must be greater than or equal to PodInitialBackoffSeconds")
	c.percentage(field.NewPath("percentageOfNodesToScore"), file.PercentageOfNodesToScore)
	config.Profiles = c.profiles(field.NewPath("profiles"), file)
	config.Extenders = c.extenders(field.NewPath("extenders"), file.Extenders)
	ignoreResources(config.Profiles, config.Extenders)
	c.warnWithoutEffect(file)
	config.Warnings = c.warnings
	return config, errors.Join(c.faults...)
}

// warnWithoutEffect reports the fields that are set and not read.
func (c *compiler) warnWithoutEffect(file *File) {
	for _, field := range []struct {
		set       bool
		path, why string
	}{
		{ptr.Deref(file.EnableContentionProfiling, false), "enableContentionProfiling", "the block profile is not recorded"},
		{file.DelayCacheUntilActive, "delayCacheUntilActive", "the informers start before this process leads, so that it schedules at once"},
		{file.ClientConnection.QPS != 0, "clientConnection.qps", "the client does not limit its rate; API priority and fairness does"},
		{file.ClientConnection.Burst != 0, "clientConnection.burst", "the client does not limit its rate; API priority and fairness does"},
	} {
		if field.set {
			c.warnings = append(c.warnings, field.path+": has no effect: "+field.why)
		}
	}
}

func (c *compiler) percentage(path *field.Path, percentage *int32) {
	if p := ptr.Deref(percentage, 0); p < 0 || p > 100 {
		c.invalid(path, p, "not in valid range [0-100]")
	}
}

func (c *compiler) leaderElection(path *field.Path, file *v1alpha1.LeaderElectionConfiguration) LeaderElection {
	e := LeaderElection{
		Enabled:       ptr.Deref(file.LeaderElect, true),
		LeaseDuration: cmp.Or(file.LeaseDuration.Duration, defaultLeaseDuration),
		RenewDeadline: cmp.Or(file.RenewDeadline.Duration, defaultRenewDeadline),
		RetryPeriod:   cmp.Or(file.RetryPeriod.Duration, defaultRetryPeriod),
		Namespace:     cmp.Or(file.ResourceNamespace, configv1.SchedulerDefaultLockObjectNamespace),
		Name:          cmp.Or(file.ResourceName, configv1.SchedulerDefaultLockObjectName),
	}
	if !e.Enabled {
		return e
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"leaseDuration", e.LeaseDuration}, {"renewDeadline", e.RenewDeadline}, {"retryPeriod", e.RetryPeriod}} {
		c.check(d.value > 0, path.Child(d.name), d.value.String(), "must be greater than zero")
	}
	c.check(e.LeaseDuration > e.RenewDeadline, path.Child("leaseDuration"), e.LeaseDuration.String(), "must be greater than `RenewDeadline`")
	c.check(5*e.RenewDeadline > 6*e.RetryPeriod, path.Child("renewDeadline"), e.RenewDeadline.String(), "must be greater than 1.2 times `RetryPeriod`")
	c.check(cmp.Or(file.ResourceLock, leaseLock) == leaseLock, path.Child("resourceLock"), file.ResourceLock, `resourceLock value must be "leases"`)
	return e
}

func (c *compiler) clientConnection(path *field.Path, file *v1alpha1.ClientConnectionConfiguration) ClientConnection {
	connection := ClientConnection{
		Kubeconfig:         file.Kubeconfig,
		AcceptContentTypes: file.AcceptContentTypes,
		ContentType:        cmp.Or(file.ContentType, defaultContentType),
		QPS:                cmp.Or(file.QPS, defaultQPS),
		Burst:              cmp.Or(int(file.Burst), defaultBurst),
	}
	c.check(connection.Burst > 0, path.Child("burst"), connection.Burst, "must be non-negative")
	return connection
}

func (c *compiler) profiles(path *field.Path, file *File) (profiles []Profile) {
	described := file.Profiles
	if len(described) == 0 {
		described = []configv1.KubeSchedulerProfile{{}}
	}
	for i := range described {
		p, at := &described[i], path.Index(i)
		name := ptr.Deref(p.SchedulerName, "")
		if p.SchedulerName == nil && len(described) == 1 {
			name = v1.DefaultSchedulerName
		}
		if name == "" {
			c.faults = append(c.faults, field.Required(at.Child("schedulerName"), ""))
		} else if slices.ContainsFunc(profiles, func(p Profile) bool { return p.Name == name }) {
			c.faults = append(c.faults, field.Duplicate(at.Child("schedulerName"), name))
		}
		c.percentage(at.Child("percentageOfNodesToScore"), p.PercentageOfNodesToScore)
		var plugins configv1.Plugins
		if p.Plugins != nil {
			plugins = *p.Plugins
		}
		profile := Profile{
			Name:                     name,
			PercentageOfNodesToScore: ptr.Deref(p.PercentageOfNodesToScore, ptr.Deref(file.PercentageOfNodesToScore, 0)),
			EveryReason:              file.everyReason,
			Points:                   c.expand(at.Child("plugins"), &plugins),
		}
		profile.Plugins = c.instances(at.Child("pluginConfig"), p.PluginConfig, profile.Points)
		profiles = append(profiles, profile)
		c.checkEnds(at.Child("plugins"), profiles)
	}
	return profiles
}

// checkEnds checks that the last profile has one QueueSort plugin, the same as the
// first profile, and a Bind plugin. It cannot check a plugin whose points are not
// known.
func (c *compiler) checkEnds(path *field.Path, profiles []Profile) {
	first, last := profiles[0], profiles[len(profiles)-1]
	sorting := last.Points[framework.QueueSort]
	switch {
	case slices.ContainsFunc(slices.Concat(first.Points[framework.QueueSort], sorting), c.isUnsure):
	case len(sorting) != 1:
		c.invalid(path.Child("queueSort"), len(sorting), "exactly one queue sort plugin is required")
	case len(first.Points[framework.QueueSort]) == 1 && !reflect.DeepEqual(first.instance(first.Points[framework.QueueSort][0].Name), last.instance(sorting[0].Name)):
		c.invalid(path.Child("queueSort"), sorting[0].Name, "must be the same for all profiles")
	}
	if len(last.Points[framework.Bind]) == 0 {
		c.faults = append(c.faults, field.Required(path.Child("bind"), "at least one bind plugin is needed"))
	}
}

// isUnsure reports whether multiPoint enables a plugin whose points are not known.
func (c *compiler) isUnsure(e Enabled) bool {
	p, _ := c.plugin(e.Name)
	return p.Points == nil && e.path == nil
}

func (p *Profile) instance(name string) Instance {
	return p.Plugins[slices.IndexFunc(p.Plugins, func(i Instance) bool { return i.Name == name })]
}

// instances lists the enabled plugins with their arguments.
func (c *compiler) instances(path *field.Path, configured []configv1.PluginConfig, points [framework.Points][]Enabled) (instances []Instance) {
	arguments := c.arguments(path, configured)
	for _, enabled := range points {
		for _, e := range enabled {
			if slices.ContainsFunc(instances, func(i Instance) bool { return i.Name == e.Name }) {
				continue
			}
			args, configured := arguments[e.Name]
			if p, _ := c.plugin(e.Name); !configured && p.Args != nil {
				args, _ = p.Args(nil, nil)
			}
			instances = append(instances, Instance{e.Name, args})
		}
	}
	return instances
}

// arguments reads the pluginConfig by plugin, including plugins that are not
// enabled.
func (c *compiler) arguments(path *field.Path, configured []configv1.PluginConfig) map[string]runtime.Object {
	arguments := map[string]runtime.Object{}
	for i, plugin := range configured {
		at := path.Index(i)
		if slices.Contains(removed, plugin.Name) {
			c.invalid(at, plugin.Name, wasRemoved)
			continue
		}
		if _, twice := arguments[plugin.Name]; twice {
			c.faults = append(c.faults, field.Duplicate(at, plugin.Name))
		}
		known, ok := c.plugin(plugin.Name)
		if !ok {
			c.warn(at, "there is no plugin %q", plugin.Name)
		}
		var args runtime.Object = &runtime.Unknown{Raw: plugin.Args.Raw, ContentType: runtime.ContentTypeJSON}
		if known.Args != nil {
			var faults []error
			args, faults = known.Args(at.Child("args"), plugin.Args.Raw)
			c.faults = append(c.faults, faults...)
		}
		arguments[plugin.Name] = args
	}
	return arguments
}
