package profile

import (
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/avoidance"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/features"
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

// defaults are the plugins of the default profile of kube-scheduler 1.37 in its
// order and with its weights, without DynamicResources and the plugins of disabled
// features. The four volume plugins share a storage.
func defaults(storage *volumes.Storage) []builtIn {
	return []builtIn{
		{Registration: gates.Registration},
		{Registration: priority.Registration},
		{Registration: nodename.Registration},
		{Registration: unschedulable.Registration},
		{Registration: taints.Registration, weight: 3},
		{nodeaffinity.Registration, 2, config.NodeAffinity},
		{Registration: ports.Registration},
		{resources.FitRegistration, 1, config.Fit},
		{Registration: storage.RestrictionsRegistration()},
		{storage.LimitsRegistration(), 0, config.VolumeLimits},
		{storage.BindingRegistration(), 0, config.VolumeBinding},
		{Registration: storage.ZoneRegistration()},
		{spread.Registration, 2, config.TopologySpread},
		{interpod.Registration, 2, config.InterPodAffinity},
		{preempt.Registration, 0, config.Preemption},
		{resources.BalancedRegistration, 1, config.Balanced},
		{Registration: images.Registration, weight: 1},
		{Registration: binder.Registration},
		{Registration: features.Registration},
	}
}

// optional are the plugins that run if a profile enables them: those of evictd, and
// those that kube-scheduler had in earlier versions.
func optional() []builtIn {
	return []builtIn{
		{pressure.Registration, 0, config.Pressure},
		{nodelabel.Registration, 0, config.NodeLabel},
		{serviceaffinity.Registration, 0, config.ServiceAffinity},
		{Registration: avoidance.Registration},
		{resources.ScorerRegistration(resources.LeastName), 0, config.Fit},
		{resources.ScorerRegistration(resources.MostName), 0, config.Fit},
		{resources.ScorerRegistration(resources.RatioName), 0, config.Fit},
	}
}

// BuiltIn lists the built-in plugins: those of the default profile in its order,
// then the others.
func BuiltIn() (plugins []config.Plugin) {
	add := func(all []builtIn, isDefault bool) {
		for _, p := range all {
			plugins = append(plugins, config.Plugin{Name: p.Name, Points: p.Points, Default: isDefault, Weight: p.weight, Args: p.args})
		}
	}
	add(defaults(nil), true)
	add(optional(), false)
	return plugins
}

func factories(storage *volumes.Storage) map[string]framework.Factory {
	all := map[string]framework.Factory{}
	for _, p := range append(defaults(storage), optional()...) {
		all[p.Name] = p.New
	}
	return all
}
