package scheduleradapter

import (
	"errors"
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/features"
	"github.com/evictd/evictd/scheduleradapter/plugins/gates"
	"github.com/evictd/evictd/scheduleradapter/plugins/images"
	"github.com/evictd/evictd/scheduleradapter/plugins/interpod"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodeaffinity"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodename"
	"github.com/evictd/evictd/scheduleradapter/plugins/ports"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/plugins/spread"
	"github.com/evictd/evictd/scheduleradapter/plugins/taints"
	"github.com/evictd/evictd/scheduleradapter/plugins/unschedulable"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/preempt"
)

// registry says who makes the plugins of config.BuiltIn. The four that are about
// volumes share one storage.
func registry(storage *volumes.Storage) map[string]framework.Factory {
	return map[string]framework.Factory{
		gates.Name:               gates.New,
		priority.Name:            priority.New,
		nodename.Name:            nodename.New,
		unschedulable.Name:       unschedulable.New,
		taints.Name:              taints.New,
		nodeaffinity.Name:        nodeaffinity.New,
		ports.Name:               ports.New,
		resources.FitName:        resources.NewFit,
		preempt.Name:             preempt.New,
		resources.BalancedName:   resources.NewBalanced,
		volumes.RestrictionsName: storage.NewRestrictions,
		volumes.LimitsName:       storage.NewLimits,
		volumes.BindingName:      storage.NewBinding,
		volumes.ZoneName:         storage.NewZone,
		spread.Name:              spread.New,
		interpod.Name:            interpod.New,
		images.Name:              images.New,
		binder.Name:              binder.New,
		features.Name:            features.New,
		pressure.Name:            pressure.New,
	}
}

// Profiles makes the plugins of a configuration and puts them in their places.
// The error joins everything that keeps a profile from running.
func Profiles(cfg *config.Config, env framework.Env, storage *volumes.Storage) ([]cycle.Profile, error) {
	var profiles []cycle.Profile
	var faults []error
	factories := registry(storage)
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		runner, err := assemble(p, factories, env)
		if err != nil {
			faults = append(faults, fmt.Errorf("profile %s: %w", p.Name, err))
			continue
		}
		profiles = append(profiles, cycle.Profile{Runner: runner, Enough: func(nodes int) int {
			return config.NumFeasibleNodesToFind(nodes, p.PercentageOfNodesToScore)
		}})
	}
	return profiles, errors.Join(faults...)
}

// assemble makes the plugins of a profile. Where kube-scheduler's plugin extends a
// point that ours has no need of, it is left out there.
func assemble(p *config.Profile, factories map[string]framework.Factory, env framework.Env) (*framework.Runner, error) {
	plugins := map[string]framework.Plugin{}
	var faults []error
	for _, instance := range p.Plugins {
		factory := factories[instance.Name]
		if factory == nil {
			faults = append(faults, fmt.Errorf("plugin %s is not part of this program", instance.Name))
			continue
		}
		plugin, err := factory(instance.Args, env)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		plugins[instance.Name] = plugin
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	var plan framework.Plan
	for point, enabled := range p.Points {
		for _, e := range enabled {
			if plugin := plugins[e.Name]; framework.Extends(plugin, framework.Point(point)) {
				plan[point] = append(plan[point], framework.Enabled{Plugin: plugin, Weight: e.Weight})
			}
		}
	}
	return framework.New(p.Name, &plan)
}
