package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// Point is an extension point.
type Point uint8

// The extension points, in the order in which a pod meets them.
const (
	PreEnqueue Point = iota
	QueueSort
	PreFilter
	Filter
	PostFilter
	PreScore
	Score
	Reserve
	Permit
	PreBind
	Bind
	PostBind
	PointCount = iota
)

var pointNames = [PointCount]string{
	"preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit", "preBind", "bind", "postBind",
}

// String is the point's field in KubeSchedulerConfiguration.
func (p Point) String() string { return pointNames[p] }

// Plugin is what a configuration has to know of a plugin that it may name.
type Plugin struct {
	Name string
	// Points are those that the plugin implements; nil where only its maker can
	// tell, once it is made.
	Points []Point
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

func (p Plugin) implements(point Point) bool {
	return p.Points == nil || slices.Contains(p.Points, point)
}

// BuiltIn returns the plugins of kube-scheduler 1.37, in the order of its default
// profile and with that profile's weights. DynamicResources and those of its
// disabled features are not among them.
func BuiltIn() []Plugin {
	var (
		filters = []Point{PreFilter, Filter}
		scores  = []Point{PreScore, Score}
		both    = []Point{PreFilter, Filter, PreScore, Score}
	)
	plugins := []Plugin{
		{Name: "SchedulingGates", Points: []Point{PreEnqueue}},
		{Name: "PrioritySort", Points: []Point{QueueSort}},
		{Name: "NodeName", Points: filters},
		{Name: "NodeUnschedulable", Points: []Point{Filter}},
		{Name: "TaintToleration", Points: []Point{Filter, PreScore, Score}, Weight: 3},
		{Name: "NodeAffinity", Points: both, Weight: 2, args: reader(nil, checkNodeAffinity)},
		{Name: "NodePorts", Points: filters},
		{Name: nodeResourcesFit, Points: both, Weight: 1, args: reader(completeFit, checkFit)},
		{Name: "VolumeRestrictions", Points: filters},
		{Name: "NodeVolumeLimits", Points: filters},
		{Name: "VolumeBinding", Points: []Point{PreFilter, Filter, PreScore, Score, Reserve, PreBind}, args: reader(completeVolumeBinding, checkVolumeBinding)},
		{Name: "VolumeZone", Points: filters},
		{Name: "PodTopologySpread", Points: both, Weight: 2, args: reader(completeSpread, checkSpread)},
		{Name: "InterPodAffinity", Points: both, Weight: 2, args: reader(completeInterPod, checkInterPod)},
		{Name: "DefaultPreemption", Points: []Point{PreEnqueue, PostFilter}, args: reader(completePreemption, checkPreemption)},
		{Name: "NodeResourcesBalancedAllocation", Points: scores, Weight: 1, args: reader(completeBalanced, checkBalanced)},
		{Name: "ImageLocality", Points: []Point{Score}, Weight: 1},
		{Name: "DefaultBinder", Points: []Point{Bind}},
		{Name: "NodeDeclaredFeatures", Points: filters},
	}
	for i := range plugins {
		plugins[i].Default = true
	}
	return plugins
}

const nodeResourcesFit = "NodeResourcesFit"

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
func (c *compiler) expand(path *field.Path, plugins *configv1.Plugins) (points [PointCount][]Enabled) {
	c.refusePodGroups(path, plugins)
	everywhere := c.multiPoint(path.Child("multiPoint"), plugins.MultiPoint)
	for i, set := range [PointCount]configv1.PluginSet{
		PreEnqueue: plugins.PreEnqueue, QueueSort: plugins.QueueSort, PreFilter: plugins.PreFilter, Filter: plugins.Filter,
		PostFilter: plugins.PostFilter, PreScore: plugins.PreScore, Score: plugins.Score, Reserve: plugins.Reserve,
		Permit: plugins.Permit, PreBind: plugins.PreBind, Bind: plugins.Bind, PostBind: plugins.PostBind,
	} {
		point := Point(i)
		points[point] = c.arrange(point, c.enabled(path.Child(point.String()), set, point), set.Disabled, everywhere)
	}
	return points
}

// arrange puts the plugins of a point in order: first those that are enabled here
// though multiPoint has them, then the others of multiPoint, then those that are
// enabled only here. A plugin's weight is the one given here, where it is.
func (c *compiler) arrange(point Point, here []Enabled, disabled []configv1.Plugin, everywhere []Enabled) []Enabled {
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
		case point != Score:
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
	custom := c.enabled(path, set, PointCount)
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

// enabled reads what a set enables; point is PointCount for multiPoint.
func (c *compiler) enabled(path *field.Path, set configv1.PluginSet, point Point) (enabled []Enabled) {
	for i, e := range set.Enabled {
		at := path.Child("enabled").Index(i)
		p, known := c.plugin(e.Name)
		switch {
		case slices.Contains(removed, e.Name):
			c.invalid(at, e.Name, wasRemoved)
		case !known:
			c.invalid(at, e.Name, "there is no such plugin")
		case point < PointCount && !p.implements(point):
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
