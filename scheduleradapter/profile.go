package scheduleradapter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
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
		resources.LeastName:      resources.NewScorer(resources.LeastName),
		resources.MostName:       resources.NewScorer(resources.MostName),
		resources.RatioName:      resources.NewScorer(resources.RatioName),
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
		avoidance.Name:           avoidance.New,
		nodelabel.Name:           nodelabel.New,
		serviceaffinity.Name:     serviceaffinity.New,
	}
}

// Profiles makes the plugins of a configuration and puts them in their places; the
// host, nil for none, runs the foreign ones. Extenders take part in every profile;
// log is told of their faults that no attempt fails for. The error joins everything
// that keeps a profile from running.
func Profiles(cfg *config.Config, env framework.Env, storage *volumes.Storage, host *outoftree.Host, log *slog.Logger) ([]cycle.Profile, error) {
	var profiles []cycle.Profile
	var faults []error
	extenders, err := extender.NewAll(cfg.Extenders, log)
	if err != nil {
		faults = append(faults, err)
	}
	for _, e := range extenders {
		if e.Preempts() {
			env.Preemptors = append(env.Preemptors, e)
		}
	}
	var sorter config.Instance // of the first profile
	factories := registry(storage)
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		maps.Copy(factories, host.Factories(p.Name))
		runner, err := assemble(p, factories, env, extenders)
		if err != nil {
			faults = append(faults, fmt.Errorf("profile %s: %w", p.Name, err))
			continue
		}
		own := p.Plugins[slices.IndexFunc(p.Plugins, func(i config.Instance) bool { return i.Name == runner.Sorter() })]
		if len(profiles) == 0 {
			sorter = own
		} else if !reflect.DeepEqual(own, sorter) {
			faults = append(faults, field.Invalid(field.NewPath("profiles").Index(i).Child("plugins", framework.QueueSort.String()), own.Name, "must be the same for all profiles"))
		}
		profiles = append(profiles, cycle.Profile{Runner: runner, NumFeasibleNodesToFind: func(nodes int) int {
			return config.NumFeasibleNodesToFind(nodes, p.PercentageOfNodesToScore)
		}})
	}
	return profiles, errors.Join(faults...)
}

// assemble makes the plugins of a profile. Where kube-scheduler's plugin extends a
// point that ours has no need of, it is left out there; a foreign one must not be
// named at a point that it does not extend.
func assemble(p *config.Profile, factories map[string]framework.Factory, env framework.Env, extenders []*extender.Extender) (*framework.Runner, error) {
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
	var plan framework.Plan
	for point, enabled := range p.Points {
		at := framework.Point(point)
		for _, e := range enabled {
			plugin := plugins[e.Name]
			_, isForeign := plugin.(framework.Adapter)
			switch {
			case plugin == nil:
			case framework.Extends(plugin, at):
				plan[at] = append(plan[at], framework.Enabled{Plugin: plugin, Weight: e.Weight})
			case isForeign:
				faults = append(faults, e.Misplaced(at))
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	for _, e := range extenders {
		e.Add(&plan)
	}
	if p.EveryReason {
		return framework.New(p.Name, &plan, framework.EveryReason)
	}
	return framework.New(p.Name, &plan)
}
