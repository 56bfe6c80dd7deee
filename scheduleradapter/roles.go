package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	lifecycle "github.com/evictd/evictd/scheduleradapter/lifecycle/kube"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
)

// roles are what a scheduler does beside scheduling.
type roles struct {
	controllers lifecycle.Config
	// extenderAddress is where another scheduler asks this one; none for nowhere.
	extenderAddress string
	// statusAddress is where status and metrics are, and statusFiles are for when it
	// is a port.
	statusAddress string
	statusFiles   *serve.TLS
}

// controllersOf reads the names of --controllers.
func controllersOf(names []string) (cfg lifecycle.Config, err error) {
	switches := map[string]*bool{"taint-eviction": &cfg.TaintEviction, "node-lifecycle": &cfg.NodeLifecycle}
	for _, name := range names {
		on := switches[name]
		if on == nil {
			return cfg, fmt.Errorf("--controllers %s: no controller %q; expected taint-eviction and node-lifecycle, or nothing", strings.Join(names, ","), name)
		}
		*on = true
	}
	return cfg, nil
}

// control prepares the controllers.
func (d *daemon) control(cfg lifecycle.Config, metrics *metric.Set) {
	if !cfg.TaintEviction && !cfg.NodeLifecycle {
		return
	}
	d.events = events.NewBroadcaster(&events.EventSinkImpl{Interface: d.client.EventsV1()})
	d.controllers = lifecycle.New(d.client, d.informers, d.events.NewRecorder(scheme.Scheme, "evictd-scheduler"), metrics, d.log, cfg)
}

// runControllers runs them, if any, from when this process leads. A fault of
// theirs does not end scheduling.
func (d *daemon) runControllers(ctx context.Context) {
	if d.controllers == nil {
		return
	}
	select {
	case <-d.leads:
	case <-ctx.Done():
		return
	}
	defer d.events.Shutdown()
	err := d.events.StartRecordingToSinkWithContext(ctx)
	if err = errors.Join(err, d.controllers.Run(ctx)); err != nil {
		d.log.Error("the controllers have ended", "error", err)
	}
}

// pressureJudge tells what the loop's table knows of pressure on nodes.
func (d *daemon) pressureJudge(table *nodetable.Table) (extender.Judge, error) {
	var file config.File
	plugins := configv1.Plugins{MultiPoint: configv1.PluginSet{
		Enabled:  []configv1.Plugin{{Name: priority.Name}, {Name: pressure.Name}, {Name: binder.Name}},
		Disabled: []configv1.Plugin{{Name: "*"}},
	}}
	file.Profiles = []configv1.KubeSchedulerProfile{{Plugins: &plugins}}
	cfg, err := config.Compile(&file, config.BuiltIn())
	if err != nil {
		return nil, err
	}
	profiles, err := Profiles(&cfg, framework.Env{Table: table}, volumes.NewSimulatedStorage(table), nil, d.log)
	if err != nil {
		return nil, err
	}
	jury := extender.NewJury(table, profiles[0].Runner)
	type answer struct {
		verdict extender.Verdict
		err     error
	}
	return func(ctx context.Context, pod *v1.Pod, nodes []string) (extender.Verdict, error) {
		answered := make(chan answer, 1)
		d.loop.Do(func() {
			verdict, err := jury.Judge(time.Now(), pod, nodes)
			answered <- answer{verdict, err}
		})
		select {
		case a := <-answered:
			return a.verdict, a.err
		case <-ctx.Done():
			return extender.Verdict{}, ctx.Err()
		}
	}, nil
}

func looksAtPressure(p config.Profile) bool {
	return slices.ContainsFunc(p.Plugins, func(i config.Instance) bool { return i.Name == pressure.Name })
}
