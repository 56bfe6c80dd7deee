package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/osprocess"
)

// Reloadable are the fields of the configuration file that take effect at a reload. The
// others take effect at the next start.
func Reloadable() []string {
	return []string{
		"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionMaxPodGracePeriod",
		"evictionPressureTransitionPeriod", "mergeDefaultEvictionSettings", "localStorageCapacityIsolation", "memoryModel",
		"hardEvictionGracePeriod", "victimsPerPass", "evictionPreferenceNamespaces", "warningNamespaces", "warningLead", "warningInterval",
		"containerPressure", "containerRestartGracePeriod", "containerRestartBackOff", "resizeNamespaces", "resizeInterval",
		"memoryReclaimBudget", "memoryReclaimStep", "memoryReclaimAttempts", "memoryThrottlePeriod", "memoryStallWindow", "memoryStallSome",
		"imageGCHighThresholdPercent", "imageGCLowThresholdPercent", "imageMinimumGCAge", "imageMaximumGCAge", "imageGCPressureMode", "imageGCKeep",
		"outside", "minimumContainerTTLDuration", "maximumDeadContainersPerContainer", "maximumDeadContainers",
	}
}

// reload compiles the configuration again at each signal of Config.Reload. A configuration
// with a fault is refused as a whole. It also compiles the thresholds again when the layout
// of the disks changes.
func (d *Daemon) reload(ctx context.Context) {
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
		case <-d.config.Reload:
		}
		d.inform(osprocess.Reloading())
		next, policy, file, err := d.reconfigure()
		if err != nil {
			d.inform("READY=1", "STATUS=the new configuration is refused: "+d.refuse(err))
			continue
		}
		d.refused.Store(nil)
		for _, c := range changesBetween(d.config.File, file) {
			d.log.Info("configuration field changed", "field", c.field, "from", c.from, "to", c.to, "takesEffect", c.when())
		}
		d.log.Info("configuration reloaded", "thresholds", len(next.Eviction.Thresholds))
		current, d.config.File = next, file
		d.config.Accepted(file)
		d.recorder.Configure(file)
		d.loop.Configure(current)
		if d.dryRun && d.cluster.speaksToAPI() && !d.anotherActs() {
			d.cluster.agent.RemoveLeftover()
		}
		if d.collector != nil {
			d.collector.Configure(policy)
		}
		select {
		case <-d.outside: // it was not followed yet
		default:
		}
		d.outside <- file.Outside
		d.inform("READY=1")
	}
}

// refuse logs each fault of a configuration in whose place another one is in effect, and returns them in one line.
func (d *Daemon) refuse(err error) string {
	var faults []string
	for _, fault := range manifest.Faults(err) {
		d.log.Error("the new configuration is refused, the old one stays", "fault", fault)
		faults = append(faults, fault.Error())
	}
	text := strings.Join(strings.Fields(strings.Join(faults, "; ")), " ")
	d.refused.Store(&text)
	return text
}

// configurationRefused has the faults of the configuration file if an earlier one is in effect; "" if not.
func (d *Daemon) configurationRefused() string {
	if faults := d.refused.Load(); faults != nil {
		return *faults
	}
	return ""
}

// reconfigure loads and validates the configuration, and changes nothing.
func (d *Daemon) reconfigure() (c control.Config, p reclaim.Policy, file config.EvictdConfiguration, err error) {
	file, err = d.config.Load()
	if err != nil {
		return c, p, file, err
	}
	compiled, err := Check(&file)
	if err := errors.Join(err, d.checkRestarts(&compiled)); err != nil {
		return c, p, file, err
	}
	if _, err := newOutsideGroups(d.node, d.tracker.podsPath(), file.Outside); err != nil {
		return c, p, file, err
	}
	o := (&eviction.Observer{}).Observe(&d.node.first)
	warnings, err := checkCapacity(&compiled, o)
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
	if slices.Contains(Reloadable(), name) {
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

// fieldsOf maps every field that is set to its JSON, strings without quotes.
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
