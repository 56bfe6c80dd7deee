package scheduleradapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/explain"
	"github.com/evictd/evictd/scheduleradapter/extender"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/kube"
	lifecycle "github.com/evictd/evictd/scheduleradapter/lifecycle/kube"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
	"github.com/evictd/evictd/scheduleradapter/plugins/devices"
	"github.com/evictd/evictd/scheduleradapter/plugins/volumes"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/secureserving"
	"github.com/evictd/evictd/scheduleradapter/statuspage"
	"github.com/evictd/evictd/scheduleradapter/whatif"
)

// leaseTolerance is how long a leader whose Lease has expired counts as healthy, as in
// kube-scheduler.
const leaseTolerance = 20 * time.Second

const defaultStatusAddress = "unix:/run/evictd-scheduler/status.sock"

func (p *program) runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Schedule the pods of a cluster",
		Long: `Schedule the pods of a cluster whose spec.schedulerName names one of the profiles.
The API server is that of a kubeconfig, a URL, the embedded one at unix:PATH, or the
cluster background this pod.`,
		Args: cobra.NoArgs,
	}
	flags := c.Flags()
	file := flags.String("config", "", "KubeSchedulerConfiguration or legacy Policy; default: kube-scheduler's default profile")
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig (default that of the configuration, else in-cluster)")
	server := flags.String("server", "", "URL of the API server, or unix:PATH of the embedded one")
	flags.StringVar(server, "master", "", "as --server")
	kubeScheduler := addKubeFlags(flags)
	secure := secureserving.Flags(flags)
	address := flags.String("status-address", defaultStatusAddress, "unix:PATH, IP:PORT, several separated by commas, or none")
	files := serve.TLSFlags(flags)
	controllers := flags.StringSlice("controllers", nil, "taint-eviction and node-lifecycle, where no controller manager runs them (default none; both with unix:PATH)")
	extending := flags.String("extender-address", "none", "serves an extender with NodePressure at a loopback IP:PORT, at any IP:PORT with the --status-tls files, at unix:PATH, or none")
	features := flags.String("feature-gates", "", "NAME=true or NAME=false, separated by commas, as for kube-scheduler; a warning names those without effect")
	percentage := flags.Int32("percentage-of-nodes-to-score", 0, "1 to 100, 0: adaptive; overrides the configuration")
	c.RunE = func(c *cobra.Command, _ []string) error {
		local := strings.HasPrefix(*server, "unix:")
		var extenders []configv1.Extender
		podGroups, withoutEffect, malformed := checkFeatureGates(*features)
		cfg, faulty := loadConfig(c, *file, p.known(podGroups), func(file *config.File) {
			if local {
				file.LeaderElection.LeaderElect = new(bool)
			}
			kubeScheduler.override(file)
			extenders = file.Extenders
		})
		if *kubeconfig == "" && *server == "" {
			*kubeconfig = cfg.ClientConnection.Kubeconfig
		}
		client, unreachable := kubeclient.Config(*kubeconfig, *server)
		if flags.Changed("percentage-of-nodes-to-score") {
			if *percentage < 0 || *percentage > 100 {
				faulty = errors.Join(faulty, fmt.Errorf("--percentage-of-nodes-to-score %d: expected 0 to 100", *percentage))
			}
			for i := range cfg.Profiles {
				cfg.Profiles[i].PercentageOfNodesToScore = *percentage
			}
		}
		if !flags.Changed("controllers") && local {
			*controllers = []string{"taint-eviction", "node-lifecycle"}
		}
		running, unknown := parseControllers(*controllers)
		log, format := kubeScheduler.log(c.ErrOrStderr())
		if kubeScheduler.writeTo != "" {
			unreachable = nil
		}
		if err := errors.Join(faulty, unreachable, unknown, malformed, secure.Validate(), format); err != nil {
			return cli.BadInput(err)
		}
		for _, warning := range slices.Concat(cfg.Warnings, withoutEffect, kubeScheduler.warnings(secure)) {
			log.Warn("configuration", "warning", warning)
		}
		if kubeScheduler.writeTo != "" {
			return p.writeConfig(c.Context(), kubeScheduler.writeTo, &cfg, extenders, log)
		}
		d, err := p.newDaemon(c.Context(), &cfg, client, roles{running, podGroups, *extending, *address, files, securePort{secure, flags, cfg.Versioned(extenders), p.version}}, log)
		if err != nil {
			return err
		}
		return d.run(c.Context())
	}
	return c
}

// daemon has the parts of `evictd-scheduler run`.
type daemon struct {
	cfg       *config.Config
	log       *slog.Logger
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	pressure  informers.SharedInformerFactory // nil: NodePressure does not run
	loop      *cycle.Loop
	plugins   *plugins // out-of-tree; nil: none
	podGroups bool
	writer    *kube.Writer
	claims    *kube.Devices
	devices   *devices.Store
	watch     *kube.Watch
	server    *serve.Server
	secure    *secureserving.Server          // nil: not served
	election  *leaderelection.HealthzAdaptor // fails while this process holds an expired Lease
	extender  *serve.Server                  // for another scheduler
	pressured *pressureEvaluator
	page      *page.Page
	figures   *statuspage.Figures
	service   *osprocess.Service

	controllers *lifecycle.Controllers // nil: none
	events      events.EventBroadcaster
	leads       chan struct{} // closed when this process starts to lead
	leading     *prometheus.GaugeVec
}

// newDaemon assembles the parts. A cli.BadInput error is caused by the input.
func (p *program) newDaemon(ctx context.Context, cfg *config.Config, restConfig *rest.Config, roles roles, log *slog.Logger) (*daemon, error) {
	restConfig.UserAgent = "evictd-scheduler"
	restConfig.ContentType = cfg.ClientConnection.ContentType
	restConfig.AcceptContentTypes = cmp.Or(cfg.ClientConnection.AcceptContentTypes, restConfig.ContentType+",application/json")
	metrics := metric.NewSet()
	metrics.AddProcess()
	kube.MeasureRequests(metrics, restConfig)
	kube.SeeRefusals(restConfig)
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	d := &daemon{podGroups: roles.podGroups, cfg: cfg, log: log, client: client, informers: kube.NewInformers(client, p.kept(cfg, roles)), leads: make(chan struct{}), leading: kube.NewLeaderGauge(metrics), election: leaderelection.NewLeaderHealthzAdaptor(leaseTolerance)}
	core := d.informers.Core().V1()
	api := kube.NewVolumes(client, core.PersistentVolumeClaims().Lister(), core.PersistentVolumes().Lister())
	table := nodetable.New()
	d.writer = kube.NewWriter(client, core.Pods().Informer().GetStore(), log)
	d.claims = kube.NewDevices(client, d.informers, d.writer.RecordEvent, log, metrics)
	d.devices = devices.NewStore(table, d.claims)
	storage := volumes.NewStorage(table, api)
	if d.plugins, err = p.newPlugins(ctx, d, restConfig, table); err != nil {
		return nil, err
	}
	d.loop, err = cycle.NewLoop(cycle.LoopConfig{
		Config: cycle.Config{
			Table: table,
			Profiles: func(env framework.Env) ([]cycle.Profile, error) {
				profiles, err := profile.New(cfg, env, profile.Stores{Volumes: storage, Devices: d.devices}, d.plugins.host(), log)
				return profiles, inConfig(cfg, err)
			},
			Env: framework.Env{
				Binder: d.writer, Random: cycle.NewRandom(rand.Uint64(), rand.Uint64()),
			},
			PodGroups:      roles.podGroups,
			InitialBackoff: cfg.PodInitialBackoff,
			MaxBackoff:     cfg.PodMaxBackoff,
		},
		API: d.writer, Log: log, Metrics: metrics,
	})
	if err != nil {
		return nil, cli.BadInput(err)
	}
	d.plugins.host().Attach(outoftree.Owner{Do: d.loop.Do, Scheduler: d.loop.Scheduler, Pods: d.loop})
	if d.watch, err = kube.NewWatch(d.informers, d.loop, storage, api, log); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(cfg.Profiles, hasPressurePlugin) || roles.extenderAddress != "none" {
		d.pressure = kube.NewPressureInformers(client)
		if err := d.watch.Pressure(d.pressure); err != nil {
			return nil, err
		}
	}
	if d.service, err = osprocess.NewService(); err != nil {
		return nil, cli.BadInput(err)
	}
	if d.server, err = serve.Listen("status-address", roles.statusAddress, nil, roles.statusFiles); err != nil {
		return nil, err
	}
	d.figures = statuspage.NewFigures(metrics.Gatherer())
	d.page = statuspage.New(d.loop, d.figures, d.state)
	d.server.Handler = d.handler(metrics)
	if d.secure, err = secureserving.Listen(roles.secure.options, log); err != nil {
		return nil, cli.BadInput(err)
	}
	if d.secure != nil {
		d.secure.Handler = d.secureHandler(ctx, roles.secure, metrics)
	}
	if d.extender, err = serve.Listen("extender-address", roles.extenderAddress, nil, roles.statusFiles); err != nil {
		return nil, err
	}
	if d.pressured, err = newPressureEvaluator(log); err != nil {
		return nil, err
	}
	if roles.extenderAddress != "none" {
		if err := d.watch.FeedPressure(d.informers, d.pressure, d.pressured.calls.Add, d.pressured.table); err != nil {
			return nil, err
		}
	}
	d.extender.Handler = serve.OneAtATime()(extender.NewHandler(d.pressured.evaluate).ServeHTTP)
	d.makeControllers(roles.controllers, metrics)
	return d, nil
}

func (d *daemon) handler(metrics *metric.Set) http.Handler {
	mux := http.NewServeMux()
	alive := serve.Probe(d.loop.Alive)
	mux.Handle("GET /healthz", alive)
	mux.Handle("GET /livez", alive)
	mux.Handle("GET /readyz", serve.Probe(d.watch.Ready))
	mux.Handle("GET /metrics", serve.OneAtATime()(metrics.Handler().ServeHTTP))
	if d.cfg.Profiling {
		handleProfiles(mux)
	}
	mux.Handle("GET /v1/explain", explain.Handler(d.loop, d.log))
	mux.Handle("POST /v1/whatif", whatif.Handler(d.loop, d.watch.Ready, d.log))
	d.page.Handle(mux)
	return mux
}

// run schedules until the context ends. It then pops no pod, waits for running binding
// cycles and releases the Lease. The error is cycle.ErrLeaseLost.
func (d *daemon) run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var goroutines sync.WaitGroup
	defer goroutines.Wait()
	defer d.informers.Shutdown()
	goroutines.Go(func() { d.server.Serve(background, d.log) })
	goroutines.Go(func() { d.secure.Serve(background) })
	goroutines.Go(func() { d.page.Run(background) })
	goroutines.Go(func() { d.extender.Serve(background, d.log) })
	goroutines.Go(func() { d.pressured.run(background) })
	goroutines.Go(func() { _ = d.writer.Run(background) })
	goroutines.Go(func() { d.claims.Run(background) })
	d.informers.StartWithContext(background)
	if d.pressure != nil {
		d.pressure.StartWithContext(background)
		defer d.pressure.Shutdown()
	}
	defer stop()
	parent := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer d.plugins.run(ctx, d.log)()
	goroutines.Go(func() {
		if !d.watchDevices(ctx, background) || d.podGroups && !d.watchPodGroups(ctx, background) || !d.watch.Synced(ctx) || !d.plugins.synced(ctx, d.informers) {
			return
		}
		d.log.Info("informers have synced")
		if err := d.lead(background); err != nil {
			end(err)
		}
	})
	goroutines.Go(func() { d.probeAPIServer(ctx) })
	goroutines.Go(func() { d.runControllers(ctx) })
	goroutines.Go(func() { d.notifyService(ctx) })
	if err := d.loop.Run(ctx); err != nil {
		return err
	}
	if parent.Err() == nil { // the Lease is lost
		return context.Cause(ctx)
	}
	return nil
}

// watchDevices starts the informers of claims and devices if the API server serves
// them. It returns false if ctx has ended before.
func (d *daemon) watchDevices(ctx, background context.Context) bool {
	served, err := kube.Served(ctx, d.client, resourceapi.SchemeGroupVersion)
	switch {
	case err != nil:
		return false
	case !slices.Contains(served, "resourceclaims"):
		d.log.Warn("pods with resource claims are not scheduled", "reason", "the API server does not serve resource.k8s.io/v1")
		return true
	}
	if err := d.watch.Devices(d.informers, served, d.devices, d.claims); err != nil {
		d.log.Error("resource claims are not watched", "error", err)
		return false
	}
	d.informers.StartWithContext(background)
	return true
}

// watchPodGroups starts the informer of PodGroups if the API server serves them. It
// returns false if ctx has ended before.
func (d *daemon) watchPodGroups(ctx, background context.Context) bool {
	served, err := kube.Served(ctx, d.client, schedulingv1beta1.SchemeGroupVersion)
	switch {
	case err != nil:
		return false
	case !slices.Contains(served, "podgroups"):
		d.log.Warn("pods of a PodGroup are not scheduled", "reason", "the API server does not serve scheduling.k8s.io/v1beta1")
		return true
	}
	if err := d.watch.PodGroups(d.informers); err != nil {
		d.log.Error("PodGroups are not watched", "error", err)
		return false
	}
	d.informers.StartWithContext(background)
	return true
}

// lead starts scheduling when this process holds the Lease. It returns when the Lease
// is lost, or when ctx ends, which releases the Lease.
func (d *daemon) lead(ctx context.Context) error {
	election := &d.cfg.LeaderElection
	if !election.Enabled {
		d.begin()
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("read the host name: %w", err)
	}
	leading := d.leading.WithLabelValues(election.Name)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: election.Namespace, Name: election.Name},
			Client:     d.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration:   election.LeaseDuration,
		RenewDeadline:   election.RenewDeadline,
		RetryPeriod:     election.RetryPeriod,
		ReleaseOnCancel: true,
		Name:            election.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leading.Set(1); d.begin() },
			OnStoppedLeading: func() { leading.Set(0) },
			OnNewLeader:      func(identity string) { d.log.Info("a scheduler leads", "identity", identity) },
		},
	})
	if err != nil {
		return fmt.Errorf("make the leader elector: %w", err)
	}
	d.election.SetLeaderElection(elector)
	elector.Run(ctx)
	if ctx.Err() == nil {
		return cycle.ErrLeaseLost
	}
	return nil
}

func (d *daemon) begin() {
	d.log.Info("scheduling starts")
	close(d.leads)
	d.loop.Lead()
}
