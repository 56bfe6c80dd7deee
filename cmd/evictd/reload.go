package main

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/manifest"
)

// reload takes up the configuration anew at each SIGHUP: what thresholds there
// are, how long grace and transition last, the memory model, and the grace of
// hard victims. It is refused whole if anything in it is wrong. Where the daemon
// measures and listens stays as it was at the start. When the disks are laid out
// in another way, the thresholds go with them.
func (d *daemon) reload(ctx context.Context, hup <-chan os.Signal, load func() (config.EvictdConfiguration, error)) {
	current := d.cfg
	thresholds := describeThresholds(current.Eviction.Thresholds)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.node.collect.Disks.Changed():
			current.Eviction = eviction.New(current.Eviction, d.node.layout())
			thresholds = describeThresholds(current.Eviction.Thresholds)
			d.loop.Configure(current)
			d.recorder.SetNode(d.scenarioNode())
			continue
		case <-hup:
		}
		file, next, err := d.reconfigure(load)
		for _, fault := range manifest.Faults(err) {
			d.log.Error("the new configuration is refused, the old one stays", "fault", fault)
		}
		if err != nil {
			continue
		}
		after := describeThresholds(next.Eviction.Thresholds)
		d.tellDiff(thresholds, after)
		current, thresholds = next, after
		d.loop.Configure(current)
		d.recorder.Configure(file)
	}
}

// reconfigure loads and checks, and changes nothing.
func (d *daemon) reconfigure(load func() (config.EvictdConfiguration, error)) (config.EvictdConfiguration, control.Config, error) {
	file, err := load()
	if err != nil {
		return file, control.Config{}, err
	}
	compiled, err := config.Compile(&file, nil)
	if err := errors.Join(err, checkRun(&file)); err != nil {
		return file, control.Config{}, err
	}
	o := (&eviction.Observer{}).Observe(&d.node.first)
	warnings, err := compiled.CheckCapacity(o)
	if err != nil {
		return file, control.Config{}, err
	}
	for _, warning := range slices.Concat(compiled.Warnings, warnings) {
		d.log.Warn("configuration", "warning", warning)
	}
	return file, d.control(&file, &compiled), nil
}

// tellDiff logs what has changed about the thresholds.
func (d *daemon) tellDiff(before, after []string) {
	for _, t := range before {
		if !slices.Contains(after, t) {
			d.log.Info("threshold removed", "threshold", t)
		}
	}
	for _, t := range after {
		if !slices.Contains(before, t) {
			d.log.Info("threshold added", "threshold", t)
		}
	}
	d.log.Info("configuration reloaded", "thresholds", len(after))
}

// describeThresholds writes each threshold whole, for the log.
func describeThresholds(thresholds []eviction.Threshold) []string {
	var all []string
	for i := range thresholds {
		t := &thresholds[i]
		all = append(all, t.Signal.String()+"<"+t.FormatValue()+" "+t.Kind()+" grace "+t.Grace.String()+" reclaim "+t.FormatMinReclaim())
	}
	return all
}
