package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Plugin is what a configuration has to know of a plugin that it may name.
type Plugin struct {
	Name string
	// Points are those that the plugin implements; nil where only its maker can
	// tell, once it is made.
	Points []framework.Point
	// Default says that every profile has the plugin unless it is disabled, after
	// the default plugins before it.
	Default bool
	// Weight is that of a default plugin; zero means 1.
	Weight int32
	// args reads the arguments of a built-in plugin that has some.
	args argsReader
}

// argsReader completes and checks arguments, which may be none at all.
type argsReader func(path *field.Path, raw []byte) (runtime.Object, []error)

func (p Plugin) implements(point framework.Point) bool {
	return p.Points == nil || slices.Contains(p.Points, point)
}

// BuiltIn returns the plugins of kube-scheduler 1.37, in the order of its default
// profile and with that profile's weights, but for DynamicResources and those of
// its disabled features; and those that it has no more or never had, which run
// where a profile enables them.
func BuiltIn() []Plugin {
	var (
		filters = []framework.Point{framework.PreFilter, framework.Filter}
		scores  = []framework.Point{framework.PreScore, framework.Score}
		both    = []framework.Point{framework.PreFilter, framework.Filter, framework.PreScore, framework.Score}
	)
	plugins := []Plugin{
		{Name: "SchedulingGates", Points: []framework.Point{framework.PreEnqueue}},
		{Name: "PrioritySort", Points: []framework.Point{framework.QueueSort}},
		{Name: "NodeName", Points: filters},
		{Name: "NodeUnschedulable", Points: []framework.Point{framework.Filter}},
		{Name: "TaintToleration", Points: []framework.Point{framework.Filter, framework.PreScore, framework.Score}, Weight: 3},
		{Name: "NodeAffinity", Points: both, Weight: 2, args: reader(nil, checkNodeAffinity)},
		{Name: "NodePorts", Points: filters},
		{Name: nodeResourcesFit, Points: both, Weight: 1, args: reader(completeFit, checkFit)},
		{Name: "VolumeRestrictions", Points: filters},
		{Name: nodeVolumeLimits, Points: filters, args: readerOf(Group, completeLimits, checkLimits)},
		{Name: "VolumeBinding", Points: []framework.Point{framework.PreFilter, framework.Filter, framework.PreScore, framework.Score, framework.Reserve, framework.PreBind}, args: reader(completeVolumeBinding, checkVolumeBinding)},
		{Name: "VolumeZone", Points: filters},
		{Name: podTopologySpread, Points: both, Weight: 2, args: reader(completeSpread, checkSpread)},
		{Name: interPodAffinity, Points: both, Weight: 2, args: reader(completeInterPod, checkInterPod)},
		{Name: "DefaultPreemption", Points: []framework.Point{framework.PreEnqueue, framework.PostFilter}, args: reader(completePreemption, checkPreemption)},
		{Name: "NodeResourcesBalancedAllocation", Points: scores, Weight: 1, args: reader(completeBalanced, checkBalanced)},
		{Name: "ImageLocality", Points: []framework.Point{framework.Score}, Weight: 1},
		{Name: "DefaultBinder", Points: []framework.Point{framework.Bind}},
		{Name: "NodeDeclaredFeatures", Points: filters},
	}
	for i := range plugins {
		plugins[i].Default = true
	}
	only := []framework.Point{framework.Score}
	return append(plugins,
		Plugin{Name: nodePressure, Points: []framework.Point{framework.Filter, framework.Score, framework.Reserve}, args: readerOf(Group, completePressure, checkPressure)},
		Plugin{Name: nodeLabel, Points: []framework.Point{framework.Filter, framework.Score}, args: readerOf(Group, nil, checkNodeLabel)},
		Plugin{Name: serviceAffinity, Points: []framework.Point{framework.PreFilter, framework.Filter, framework.Score}, args: readerOf(Group, nil, checkServiceArgs)},
		Plugin{Name: nodePreferAvoidPods, Points: only},
		Plugin{Name: "NodeResourcesLeastAllocated", Points: only, args: reader(completeFit, checkFit)},
		Plugin{Name: "NodeResourcesMostAllocated", Points: only, args: reader(completeFit, checkFit)},
		Plugin{Name: "RequestedToCapacityRatio", Points: only, args: reader(completeFit, checkFit)},
	)
}

// Plugins that are named more than once.
const (
	interPodAffinity    = "InterPodAffinity"
	nodeLabel           = "NodeLabel"
	nodePreferAvoidPods = "NodePreferAvoidPods"
	nodePressure        = "NodePressure"
	nodeResourcesFit    = "NodeResourcesFit"
	nodeVolumeLimits    = "NodeVolumeLimits"
	podTopologySpread   = "PodTopologySpread"
	serviceAffinity     = "ServiceAffinity"
)

// removed are plugins that earlier versions had: volumes of these kinds are
// counted by NodeVolumeLimits.
var removed = []string{"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"}

const wasRemoved = `was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")`

func (c *compiler) plugin(name string) (Plugin, bool) {
	i := slices.IndexFunc(c.plugins, func(p Plugin) bool { return p.Name == name })
	if i < 0 {
		return Plugin{}, false
	}
	return c.plugins[i], true
}

// expand says what runs at each point: what the point's own set enables, and of
// the plugins of multiPoint those that implement the point and are not disabled
// there.
func (c *compiler) expand(path *field.Path, plugins *configv1.Plugins) (points [framework.Points][]Enabled) {
	c.refusePodGroups(path, plugins)
	everywhere := c.multiPoint(path.Child("multiPoint"), plugins.MultiPoint)
	for i, set := range [framework.Points]configv1.PluginSet{
		framework.PreEnqueue: plugins.PreEnqueue, framework.QueueSort: plugins.QueueSort, framework.PreFilter: plugins.PreFilter, framework.Filter: plugins.Filter,
		framework.PostFilter: plugins.PostFilter, framework.PreScore: plugins.PreScore, framework.Score: plugins.Score, framework.Reserve: plugins.Reserve,
		framework.Permit: plugins.Permit, framework.PreBind: plugins.PreBind, framework.Bind: plugins.Bind, framework.PostBind: plugins.PostBind,
	} {
		point := framework.Point(i)
		points[point] = c.arrange(point, c.enabled(path.Child(point.String()), set, point), set.Disabled, everywhere)
	}
	return points
}

// arrange puts the plugins of a point in order: first those that are enabled here
// though multiPoint has them, then the others of multiPoint, then those that are
// enabled only here. A plugin's weight is the one given here, where it is.
func (c *compiler) arrange(point framework.Point, here []Enabled, disabled []configv1.Plugin, everywhere []Enabled) []Enabled {
	var overriding, expanded, only []Enabled
	if !names(disabled, "*") {
		for _, e := range everywhere {
			if p, known := c.plugin(e.Name); known && p.implements(point) && !names(disabled, e.Name) {
				expanded = append(expanded, e)
			}
		}
	}
	for _, e := range here {
		if i := slices.IndexFunc(expanded, named(e.Name)); i >= 0 {
			expanded = slices.Delete(expanded, i, i+1)
			overriding = append(overriding, e)
		} else {
			only = append(only, e)
		}
	}
	for i := range expanded {
		expanded[i].path = nil
	}
	order := slices.Concat(overriding, expanded, only)
	for i := range order {
		switch {
		case point != framework.Score:
			order[i].Weight = 0
		case order[i].Weight == 0:
			order[i].Weight = 1
		}
	}
	return order
}

// multiPoint merges the default plugins with the configured ones: a default
// plugin that is enabled again stays in its place and takes the new weight.
func (c *compiler) multiPoint(path *field.Path, set configv1.PluginSet) (merged []Enabled) {
	custom := c.enabled(path, set, framework.Points)
	for _, p := range c.plugins {
		if !p.Default || names(set.Disabled, "*") || names(set.Disabled, p.Name) {
			continue
		}
		e := Enabled{Name: p.Name, Weight: int64(p.Weight)}
		if i := slices.IndexFunc(custom, named(p.Name)); i >= 0 {
			e = custom[i]
			custom = slices.Delete(custom, i, i+1)
		}
		merged = append(merged, e)
	}
	return append(merged, custom...)
}

// enabled reads what a set enables; point is framework.Points for multiPoint.
func (c *compiler) enabled(path *field.Path, set configv1.PluginSet, point framework.Point) (enabled []Enabled) {
	for i, e := range set.Enabled {
		at := path.Child("enabled").Index(i)
		p, known := c.plugin(e.Name)
		switch {
		case slices.Contains(removed, e.Name):
			c.invalid(at, e.Name, wasRemoved)
		case !known:
			c.invalid(at, e.Name, "there is no such plugin")
		case point < framework.Points && !p.implements(point):
			c.faults = append(c.faults, doesNotExtend(at, e.Name, point))
		case slices.ContainsFunc(enabled, named(e.Name)):
			c.faults = append(c.faults, field.Duplicate(at, e.Name))
		default:
			weight := int64(0)
			if e.Weight != nil {
				weight = int64(*e.Weight)
			}
			enabled = append(enabled, Enabled{Name: e.Name, Weight: weight, path: at})
		}
	}
	for i, d := range set.Disabled {
		if _, known := c.plugin(d.Name); !known && d.Name != "*" {
			c.warn(path.Child("disabled").Index(i), "there is no plugin %q", d.Name)
		}
	}
	return enabled
}

// refusePodGroups refuses plugins at the points of pod groups, which
// kube-scheduler has behind a feature that is off.
func (c *compiler) refusePodGroups(path *field.Path, plugins *configv1.Plugins) {
	for _, point := range []struct {
		name string
		set  configv1.PluginSet
	}{
		{"placementGenerate", plugins.PlacementGenerate},
		{"placementScore", plugins.PlacementScore},
		{"podGroupPostFilter", plugins.PodGroupPostFilter},
	} {
		if len(point.set.Enabled) > 0 {
			c.faults = append(c.faults, field.Forbidden(path.Child(point.name, "enabled"), "pods are not scheduled in groups"))
		}
	}
}

func named(name string) func(Enabled) bool {
	return func(e Enabled) bool { return e.Name == name }
}

func names(plugins []configv1.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p configv1.Plugin) bool { return p.Name == name })
}
