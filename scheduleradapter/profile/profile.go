// Package profile makes the profiles of a configuration: it makes the plugins and
// enables them at their extension points.
package profile

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
)

// New makes the profiles of a configuration. host runs the out-of-tree plugins; nil:
// there are none. Extenders run in every profile; log receives those of their errors
// that fail no attempt. The returned error joins all faults.
func New(cfg *config.Config, env framework.Env, stores Stores, host *outoftree.Host, log *slog.Logger) ([]cycle.Profile, error) {
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
	env.HasDeviceClass = stores.Devices.HasClass
	made := factories(stores)
	for i := range cfg.Profiles {
		p := &cfg.Profiles[i]
		maps.Copy(made, host.Factories(p.Name))
		runner, err := assemble(p, made, env, extenders)
		if err != nil {
			faults = append(faults, fmt.Errorf("profile %s: %w", p.Name, err))
			continue
		}
		sorting := p.Plugins[slices.IndexFunc(p.Plugins, func(i config.Instance) bool { return i.Name == runner.Sorter() })]
		if len(profiles) == 0 {
			sorter = sorting
		} else if !reflect.DeepEqual(sorting, sorter) {
			faults = append(faults, field.Invalid(field.NewPath("profiles").Index(i).Child("plugins", framework.QueueSort.String()), sorting.Name, "must be the same for all profiles"))
		}
		profiles = append(profiles, cycle.Profile{Runner: runner, NumFeasibleNodesToFind: func(nodes int) int {
			return config.NumFeasibleNodesToFind(nodes, p.PercentageOfNodesToScore)
		}})
	}
	return profiles, errors.Join(faults...)
}

// assemble makes the plugins of a profile. An out-of-tree plugin must implement the
// points at which it is enabled by name; a built-in plugin is left out at the points
// that it does not implement.
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
			_, isOutOfTree := plugin.(framework.Adapter)
			switch {
			case plugin == nil:
			case framework.Extends(plugin, at):
				plan[at] = append(plan[at], framework.Enabled{Plugin: plugin, Weight: e.Weight})
			case isOutOfTree:
				faults = append(faults, e.Misplaced(at))
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	addPreScores(&plan)
	for _, e := range extenders {
		e.Add(&plan)
	}
	if p.EveryReason {
		return framework.New(p.Name, &plan, framework.EveryReason)
	}
	return framework.New(p.Name, &plan)
}

// addPreScores enables PreScore of the built-in plugins that score: without it their
// scores would be those of the attempt before.
func addPreScores(plan *framework.Plan) {
	for _, scorer := range plan[framework.Score] {
		_, isOutOfTree := scorer.Plugin.(framework.Adapter)
		enabled := slices.ContainsFunc(plan[framework.PreScore], func(e framework.Enabled) bool { return e.Plugin.Name() == scorer.Plugin.Name() })
		if !isOutOfTree && !enabled && framework.Extends(scorer.Plugin, framework.PreScore) {
			plan[framework.PreScore] = append(plan[framework.PreScore], framework.Enabled{Plugin: scorer.Plugin})
		}
	}
}
