package profile

import (
	"slices"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/avoidance"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/devices"
	"github.com/evictd/evictd/scheduleradapter/plugins/features"
	"github.com/evictd/evictd/scheduleradapter/plugins/gang"
	"github.com/evictd/evictd/scheduleradapter/plugins/gates"
	"github.com/evictd/evictd/scheduleradapter/plugins/images"
	"github.com/evictd/evictd/scheduleradapter/plugins/interpod"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodeaffinity"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodelabel"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodename"
	"github.com/evictd/evictd/scheduleradapter/plugins/ports"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/plugins/serviceaffinity"
	"github.com/evictd/evictd/scheduleradapter/plugins/spread"
	"github.com/evictd/evictd/scheduleradapter/plugins/taints"
	"github.com/evictd/evictd/scheduleradapter/plugins/unschedulable"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// builtIn is a built-in plugin with its place in the default profile.
type builtIn struct {
	framework.Registration
	weight int32 // zero: 1
	args   config.ArgsReader
}

// Stores have the objects that several plugins share: those of the volume plugins and
// those of DynamicResources.
type Stores struct {
	Volumes *volumes.Storage
	Devices *devices.Store
}

// NewSimulatedStores makes stores without an API server: writes of PreBind apply
// immediately.
func NewSimulatedStores(table *nodetable.Table) Stores {
	return Stores{volumes.NewSimulatedStorage(table), devices.NewSimulatedStore(table)}
}

// defaults are the plugins of the default profile of kube-scheduler 1.37 in its
// order and with its weights, without the plugins of disabled features.
func defaults(stores Stores) []builtIn {
	storage := stores.Volumes
	return []builtIn{
		{Registration: framework.Register[*gates.Plugin](gates.Name, gates.New)},
		{Registration: framework.Register[*priority.Plugin](priority.Name, priority.New)},
		{Registration: framework.Register[*nodename.Plugin](nodename.Name, nodename.New)},
		{Registration: framework.Register[*unschedulable.Plugin](unschedulable.Name, unschedulable.New)},
		{Registration: framework.Register[*taints.Plugin](taints.Name, taints.New), weight: 3},
		{framework.Register[*nodeaffinity.Plugin](nodeaffinity.Name, nodeaffinity.New), 2, config.NodeAffinity},
		{Registration: framework.Register[*ports.Plugin](ports.Name, ports.New)},
		{framework.Register[*resources.Fit](resources.FitName, resources.NewFit), 1, config.Fit},
		{Registration: framework.Register[*volumes.Restrictions](volumes.RestrictionsName, storage.NewRestrictions)},
		{framework.Register[*volumes.Limits](volumes.LimitsName, storage.NewLimits), 0, config.VolumeLimits},
		{framework.Register[*volumes.Binding](volumes.BindingName, storage.NewBinding), 0, config.VolumeBinding},
		{Registration: framework.Register[*volumes.Zone](volumes.ZoneName, storage.NewZone)},
		{framework.Register[*spread.Plugin](spread.Name, spread.New), 2, config.TopologySpread},
		{framework.Register[*interpod.Plugin](interpod.Name, interpod.New), 2, config.InterPodAffinity},
		{framework.Register[*devices.Plugin](devices.Name, stores.Devices.New), 2, config.DynamicResources},
		{framework.Register[*preempt.Plugin](preempt.Name, preempt.New), 0, config.Preemption},
		{framework.Register[*resources.Balanced](resources.BalancedName, resources.NewBalanced), 1, config.Balanced},
		{Registration: framework.Register[*images.Plugin](images.Name, images.New), weight: 1},
		{Registration: framework.Register[*binder.Plugin](binder.Name, binder.New)},
		{Registration: framework.Register[*features.Plugin](features.Name, features.New)},
	}
}

// optional are the plugins that run if a profile enables them: GangScheduling, which
// the gate GenericWorkload makes a default plugin, the last one, those of evictd, and
// those that kube-scheduler had in earlier versions.
func optional() []builtIn {
	return []builtIn{
		{Registration: framework.Register[*gang.Plugin](gang.Name, gang.New)},
		{framework.Register[*pressure.Plugin](pressure.Name, pressure.New), 0, config.Pressure},
		{framework.Register[*nodelabel.Plugin](nodelabel.Name, nodelabel.New), 0, config.NodeLabel},
		{framework.Register[*serviceaffinity.Plugin](serviceaffinity.Name, serviceaffinity.New), 0, config.ServiceAffinity},
		{Registration: framework.Register[avoidance.Plugin](avoidance.Name, avoidance.New)},
		{framework.Register[*resources.Scorer](resources.LeastName, resources.NewScorer(resources.LeastName)), 0, config.Fit},
		{framework.Register[*resources.Scorer](resources.MostName, resources.NewScorer(resources.MostName)), 0, config.Fit},
		{framework.Register[*resources.Scorer](resources.RatioName, resources.NewScorer(resources.RatioName)), 0, config.Fit},
	}
}

// idle are the plugins of kube-scheduler 1.37 that run at a point where the built-in
// plugin of the same name needs nothing.
var idle = map[framework.Point][]string{
	framework.PreEnqueue: {devices.Name, preempt.Name},
	framework.PreFilter: {
		unschedulable.Name, taints.Name, nodeaffinity.Name, ports.Name, resources.FitName, volumes.RestrictionsName, volumes.LimitsName,
		volumes.BindingName, volumes.ZoneName, spread.Name, interpod.Name, features.Name,
	},
	framework.Filter:   {nodename.Name},
	framework.PreScore: {taints.Name, nodeaffinity.Name, resources.FitName, volumes.BindingName, spread.Name, interpod.Name, resources.BalancedName},
}

// idlePoints are the points of idle that name a plugin, without those that it implements.
func idlePoints(p builtIn) (points []framework.Point) {
	for point := range framework.Points {
		if slices.Contains(idle[point], p.Name) && !slices.Contains(p.Points, point) {
			points = append(points, point)
		}
	}
	return points
}

// BuiltIn lists the built-in plugins: those of the default profile in its order,
// then the others.
func BuiltIn() (plugins []config.Plugin) {
	add := func(all []builtIn, isDefault bool) {
		for _, p := range all {
			plugins = append(plugins, config.Plugin{Name: p.Name, Points: p.Points, Idle: idlePoints(p), Default: isDefault, Weight: p.weight, Args: p.args})
		}
	}
	add(defaults(Stores{}), true)
	add(optional(), false)
	return plugins
}

func factories(stores Stores) map[string]framework.Factory {
	all := map[string]framework.Factory{}
	for _, p := range append(defaults(stores), optional()...) {
		all[p.Name] = p.New
	}
	return all
}
