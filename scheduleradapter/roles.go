package scheduleradapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/kube"
	lifecycle "github.com/evictd/evictd/scheduleradapter/lifecycle/kube"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/binder"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
	"github.com/evictd/evictd/scheduleradapter/plugins/priority"
	"github.com/evictd/evictd/scheduleradapter/profile"
)

// roles are the addresses and controllers of `run`.
type roles struct {
	controllers lifecycle.Config
	// podGroups: the gate GenericWorkload is on.
	podGroups bool
	// extenderAddress serves the extender; none: not served.
	extenderAddress string
	// statusAddress serves status and metrics; statusFiles are used for a port.
	statusAddress string
	statusFiles   *serve.TLS
	// secure is the port of kube-scheduler.
	secure securePort
}

func parseControllers(names []string) (cfg lifecycle.Config, err error) {
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

func (d *daemon) makeControllers(cfg lifecycle.Config, metrics *metric.Set) {
	if !cfg.TaintEviction && !cfg.NodeLifecycle {
		return
	}
	d.events = events.NewBroadcaster(&events.EventSinkImpl{Interface: d.client.EventsV1()})
	d.controllers = lifecycle.New(d.client, d.informers, d.events.NewRecorder(scheme.Scheme, "evictd-scheduler"), metrics, d.log, cfg)
}

// runControllers runs the controllers while this process leads. Their errors do not
// end scheduling.
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
		d.log.Error("controllers ended", "error", err)
	}
}

// pressureEvaluator evaluates nodes by NodePressure alone for another scheduler. It has its
// own table and goroutine, so that its clients do not delay scheduling.
type pressureEvaluator struct {
	calls     *cycle.Calls
	table     *nodetable.Table
	evaluator *extender.Evaluator
}

func newPressureEvaluator(log *slog.Logger) (*pressureEvaluator, error) {
	var file config.File
	plugins := configv1.Plugins{MultiPoint: configv1.PluginSet{
		Enabled:  []configv1.Plugin{{Name: priority.Name}, {Name: pressure.Name}, {Name: binder.Name}},
		Disabled: []configv1.Plugin{{Name: "*"}},
	}}
	file.Profiles = []configv1.KubeSchedulerProfile{{Plugins: &plugins}}
	cfg, err := config.Compile(&file, profile.BuiltIn())
	if err != nil {
		return nil, err
	}
	j := &pressureEvaluator{calls: cycle.NewCalls(), table: nodetable.New()}
	profiles, err := profile.New(&cfg, framework.Env{Table: j.table}, profile.NewSimulatedStores(j.table), nil, log)
	if err != nil {
		return nil, err
	}
	j.evaluator = extender.NewEvaluator(j.table, profiles[0].Runner)
	return j, nil
}

// run owns the table until the context ends.
func (j *pressureEvaluator) run(ctx context.Context) {
	for ctx.Err() == nil {
		j.calls.Run()
		select {
		case <-ctx.Done():
		case <-j.calls.Signal:
		}
	}
}

func (j *pressureEvaluator) evaluate(ctx context.Context, pod *v1.Pod, nodes []string) (extender.Result, error) {
	type answer struct {
		extender.Result
		error
	}
	answers := make(chan answer, 1)
	j.calls.Add(func() {
		r, err := j.evaluator.Evaluate(time.Now(), pod, nodes)
		answers <- answer{r, err}
	})
	select {
	case a := <-answers:
		return a.Result, a.error
	case <-ctx.Done():
		return extender.Result{}, ctx.Err()
	}
}

func hasPressurePlugin(p config.Profile) bool {
	return slices.ContainsFunc(p.Plugins, func(i config.Instance) bool { return i.Name == pressure.Name })
}

// kept is what the informers keep of the objects.
func (p *program) kept(cfg *config.Config, roles roles) kube.Kept {
	switch {
	case len(cfg.Extenders)+len(p.plugins) > 0:
		return kube.Objects
	case roles.controllers != lifecycle.Config{}:
		return kube.Fields
	}
	return kube.Digests
}
