package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/osprocess"
)

// reloadable are the fields that a reload takes up: what thresholds there are, how
// long grace and transition last, which memory counts, the grace of hard victims,
// and what is collected. Where the daemon measures, listens and tells stays as it was at the
// start.
var reloadable = []string{
	"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionMaxPodGracePeriod",
	"evictionPressureTransitionPeriod", "mergeDefaultEvictionSettings", "localStorageCapacityIsolation", "memoryModel",
	"hardEvictionGracePeriod", "victimsPerPass",
	"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge", "imageGCPressureMode", "imageGCKeep",
	"minimumContainerTTLDuration", "maximumDeadContainersPerContainer", "maximumDeadContainers",
}

// reload takes up the configuration anew at each SIGHUP. It is refused whole if
// anything in it is wrong. When the disks are laid out in another way, the
// thresholds go with them.
func (d *daemon) reload(ctx context.Context, hup <-chan os.Signal, load func() (config.EvictdConfiguration, error)) {
	current := d.cfg
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.node.collect.Disks.Changed():
			current.Eviction = eviction.New(current.Eviction, d.node.layout())
			d.recorder.SetNode(d.scenarioNode())
			d.loop.Configure(current)
			continue
		case <-hup:
		}
		d.inform(osprocess.Reloading())
		next, policy, file, err := d.reconfigure(load)
		if err != nil {
			d.refuse(err)
			continue
		}
		d.refused.Store(nil)
		for _, c := range changesBetween(d.running, file) {
			d.log.Info("configuration field changed", "field", c.field, "from", c.from, "to", c.to, "takesEffect", c.when())
		}
		d.log.Info("configuration reloaded", "thresholds", len(next.Eviction.Thresholds))
		current, d.running = next, file
		d.recorder.Configure(file)
		d.loop.Configure(current)
		if d.collector != nil {
			d.collector.Configure(policy)
		}
		d.inform("READY=1")
	}
}

// refuse tells each fault; the old configuration stays.
func (d *daemon) refuse(err error) {
	var faults []string
	for _, fault := range manifest.Faults(err) {
		d.log.Error("the new configuration is refused, the old one stays", "fault", fault)
		faults = append(faults, fault.Error())
	}
	text := strings.Join(strings.Fields(strings.Join(faults, "; ")), " ") // one line
	d.refused.Store(&text)
	d.inform("READY=1", "STATUS=the new configuration is refused: "+text)
}

// reconfigure loads and checks, and changes nothing.
func (d *daemon) reconfigure(load func() (config.EvictdConfiguration, error)) (c control.Config, p reclaim.Policy, file config.EvictdConfiguration, err error) {
	file, err = load()
	if err != nil {
		return c, p, file, err
	}
	compiled, err := config.Compile(&file, nil)
	if err := errors.Join(err, checkRun(&file)); err != nil {
		return c, p, file, err
	}
	o := (&eviction.Observer{}).Observe(&d.node.first)
	warnings, err := compiled.CheckCapacity(o)
	if err != nil {
		return c, p, file, err
	}
	for _, warning := range slices.Concat(compiled.Warnings, warnings) {
		d.log.Warn("configuration", "warning", warning)
	}
	return d.control(&file, &compiled), compiled.Reclaim, file, nil
}

// change is one field of the configuration file that differs; "" is what is not
// set.
type change struct{ field, from, to string }

func (c change) when() string {
	name, _, _ := strings.Cut(c.field, "[")
	if slices.Contains(reloadable, name) {
		return "now"
	}
	return "at the next start"
}

// changesBetween lists the fields that differ, by name; an entry of a map counts as
// a field.
func changesBetween(before, after config.EvictdConfiguration) []change {
	from, to := fieldsOf(before), fieldsOf(after)
	all := maps.Clone(from)
	maps.Copy(all, to)
	var changes []change
	for field := range all {
		if from[field] != to[field] {
			changes = append(changes, change{field, from[field], to[field]})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.field, b.field) })
	return changes
}

// fieldsOf writes every field that is set as its JSON, strings bare.
func fieldsOf(c config.EvictdConfiguration) map[string]string {
	text, _ := json.Marshal(c) // strings, numbers and maps of strings
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(text, &fields)
	flat := map[string]string{}
	for name, value := range fields {
		var entries map[string]string
		if json.Unmarshal(value, &entries) != nil {
			flat[name] = strings.Trim(string(value), `"`)
			continue
		}
		for key, value := range entries {
			flat[name+"["+key+"]"] = value
		}
	}
	return flat
}
