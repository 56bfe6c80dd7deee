package config

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Plugin describes a plugin that a configuration may name.
type Plugin struct {
	Name string
	// Points are the extension points that the plugin implements; nil: known after
	// the plugin is made.
	Points []framework.Point
	// Idle are further points at which a configuration may name the plugin, without
	// effect.
	Idle []framework.Point
	// Default: every profile enables the plugin unless it is disabled, in the order
	// of the list of plugins.
	Default bool
	// Weight of a default plugin; zero: 1.
	Weight int32
	// Args reads the arguments; nil: the plugin is out-of-tree, or has none.
	Args ArgsReader
}

// ArgsReader completes and checks the arguments of a plugin; raw may be empty.
type ArgsReader func(path *field.Path, raw []byte) (runtime.Object, []error)

func (p Plugin) implements(point framework.Point) bool {
	return p.Points == nil || slices.Contains(p.Points, point)
}

// Plugins to which a Policy is translated, and whose arguments it sets.
const (
	dynamicResources    = "DynamicResources"
	interPodAffinity    = "InterPodAffinity"
	nodeLabel           = "NodeLabel"
	nodePreferAvoidPods = "NodePreferAvoidPods"
	nodePressure        = "NodePressure"
	nodeResourcesFit    = "NodeResourcesFit"
	nodeVolumeLimits    = "NodeVolumeLimits"
	podTopologySpread   = "PodTopologySpread"
	serviceAffinity     = "ServiceAffinity"
)

// removed are plugins of earlier versions; NodeVolumeLimits counts their volumes.
var removed = []string{"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"}

const wasRemoved = `was invalid in version "v1" (KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")`

func (c *compiler) plugin(name string) (Plugin, bool) {
	i := slices.IndexFunc(c.plugins, func(p Plugin) bool { return p.Name == name })
	if i < 0 {
		return Plugin{}, false
	}
	return c.plugins[i], true
}

// expand computes the plugins of each point: those of the point's set, and those of
// multiPoint that implement the point and are not disabled there.
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

// arrange orders the plugins of a point: those enabled at the point and by
// multiPoint, the other plugins of multiPoint, and those enabled only at the point.
// A weight at the point overrides that of multiPoint.
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

// multiPoint merges the default plugins with the configured ones: a default plugin
// that is enabled again keeps its place and takes the new weight.
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

// enabled reads the enabled plugins of a set; point is framework.Points for
// multiPoint.
func (c *compiler) enabled(path *field.Path, set configv1.PluginSet, point framework.Point) (enabled []Enabled) {
	for i, e := range set.Enabled {
		at := path.Child("enabled").Index(i)
		p, known := c.plugin(e.Name)
		switch {
		case slices.Contains(removed, e.Name):
			c.invalid(at, e.Name, wasRemoved)
		case !known:
			c.invalid(at, e.Name, "there is no such plugin")
		case slices.Contains(p.Idle, point):
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

// refusePodGroups rejects plugins at the points of pod groups, whose feature is off
// in kube-scheduler.
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
