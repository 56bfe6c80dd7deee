package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/flight"
	"github.com/evictd/evictd/eviction/garbage"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/rt"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom/apply"
	"github.com/evictd/evictd/stats/collect"
)

const (
	defaultHousekeeping = 10 * time.Second
	longestHardGrace    = time.Second
	// niceness lets a thread that has something to do go before the pods that
	// make it necessary.
	niceness = -15
	// runtimePatience is how long the runtime may take at the start to say where it
	// keeps images.
	runtimePatience = 10 * time.Second
	// enforceRetry is how often the limit of the pods' cgroup is tried again
	// while the pods use more than that (kubelet: 60 s).
	enforceRetry = time.Minute
	// firstList is how long the API server may take at the start to tell of its
	// pods, before those that the container runtime has are taken for what they
	// look like there: without a priority.
	firstList = 10 * time.Second
	// prepared is how many pods are ready to be signalled.
	prepared = 16
)

// runFlags adds the flags of `evictd run`; see contract of the same names.
func runFlags(flags *pflag.FlagSet) *overrides {
	o := kubeletFlags(flags)
	type file = config.EvictdConfiguration
	o.text("mode", "native|takeover|backstop|observe: names of conditions and taints, and whether it acts (default backstop with an API server, native standalone and with the embedded API)", func(c *file) *string { return &c.Mode })
	o.truth("dry-run", "decide and report, touch nothing", func(c *file) *bool { return &c.DryRun })
	o.text("node-name", "the Node it speaks for (default the host name)", func(c *file) *string { return &c.NodeName })
	o.text("cgroup-root", "the cgroup taken as the node (default the root of the hierarchy)", func(c *file) *string { return &c.CgroupRoot })
	o.text("pods-cgroup", "where pods live below the root (default kubepods or kubepods.slice)", func(c *file) *string { return &c.PodsCgroup })
	o.text("pod-manifests", "directory of v1.Pod manifests of this node", func(c *file) *string { return &c.PodManifests })
	o.text("kubeconfig", "kubeconfig of the API server (default none: standalone)", func(c *file) *string { return &c.Kubeconfig })
	o.text("server", "URL of the API server, or unix:PATH of the embedded one", func(c *file) *string { return &c.Server })
	o.text("cri-endpoint", "container runtime: unix:PATH, or none (default found among the usual sockets)", func(c *file) *string { return &c.CRIEndpoint })
	o.text("runc-state", "directories in which runc keeps its containers, patterns separated by commas, or none (default the usual ones, if an agent runs for anything else)", func(c *file) *string { return &c.RuncState })
	o.text("nodefs", "path on the node's filesystem (default /var/lib/kubelet or /)", func(c *file) *string { return &c.NodeFs })
	o.text("imagefs", "path on the images' filesystem (default that of nodefs)", func(c *file) *string { return &c.ImageFs })
	o.text("containerfs", "path on the writable layers' filesystem (default that of imagefs)", func(c *file) *string { return &c.ContainerFs })
	o.text("node-status-file", "file for the Node manifest with conditions and taints, replaced on change", func(c *file) *string { return &c.NodeStatusFile })
	o.text("status-address", "unix:PATH, IP:PORT or none (default "+defaultStatusAddress+")", func(c *file) *string { return &c.StatusAddress })
	o.text("state-dir", "directory for what survives a restart (default "+defaultStateDir+")", func(c *file) *string { return &c.StateDir })
	o.text("agent-address", "unix:PATH where the service manager starts evictd-agent (default none: evictd starts it)", func(c *file) *string { return &c.AgentAddress })
	o.text("runtime-dir", "directory for what must be undone if evictd is killed, best in memory (default "+defaultRuntimeDir+")", func(c *file) *string { return &c.RuntimeDir })
	o.text("soft-eviction", "api|direct: whether soft victims go through the Eviction API and its disruption budgets (default direct in native mode, api in others)", func(c *file) *string { return &c.SoftEviction })
	o.duration("soft-eviction-deadline", "how long the Eviction API may hold a soft victim back (default 30s)", func(c *file) *metav1.Duration { return &c.SoftEvictionDeadline })
	o.text("node-memory", "take the node for a virtual one of this much memory, used by the pods' processes alone", func(c *file) *string { return &c.NodeMemory })
	notified := flags.Bool("kernel-memcg-notification", true, "on cgroup v1, let the kernel tell of memory that crosses a threshold; polling goes on either way")
	o.set["kernel-memcg-notification"] = func(c *file) { c.KernelMemcgNotification = notified }
	o.duration("housekeeping-interval", "the regular pass (default 10s)", func(c *file) *metav1.Duration { return &c.HousekeepingInterval })
	grace := flags.Duration("hard-eviction-grace-period", longestHardGrace, "from SIGTERM to SIGKILL of hard victims, 0s to 1s")
	o.set["hard-eviction-grace-period"] = func(c *file) { c.HardEvictionGracePeriod = &metav1.Duration{Duration: *grace} }
	return o
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Protect this node",
		Args:  cobra.NoArgs,
	}
	path := c.Flags().String("config", "", "EvictdConfiguration or KubeletConfiguration (default the kubelet's thresholds)")
	force := c.Flags().Bool("force", false, "run in native mode although a kubelet runs here")
	flags := runFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		load := func() (file config.EvictdConfiguration, err error) {
			if *path != "" {
				data, err := cli.ReadInput(c, *path)
				if err != nil {
					return file, err
				}
				if file, err = config.Load(data); err != nil {
					return file, cli.InFile(*path, err)
				}
			}
			flags.apply(&file)
			return file, nil
		}
		file, err := load()
		if err != nil {
			return err
		}
		log := newBacklog(c.ErrOrStderr())
		defer log.close()
		d, err := newDaemon(&file, *force, slog.New(slog.NewTextHandler(log, nil)))
		if err != nil {
			return err
		}
		return d.run(c.Context(), hup, load)
	}
	return c
}

// checkRun refuses settings that cannot be meant, all of them together.
func checkRun(file *config.EvictdConfiguration) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if s := file.SoftEviction; s != "" && s != softAPI && s != softDirect {
		fault("--soft-eviction %q: expected api or direct", s)
	}
	if file.SoftEviction == softAPI && !hasAPI(&file.Run) {
		fault("--soft-eviction api: needs an API server; expected --kubeconfig or --server beside it")
	}
	if a := file.AgentAddress; a != "" && !strings.HasPrefix(a, "unix:/") {
		fault("--agent-address %q: expected unix: and an absolute path", a)
	}
	if file.SoftEvictionDeadline.Duration < 0 {
		fault("--soft-eviction-deadline %v: must not be negative", file.SoftEvictionDeadline.Duration)
	}
	if err := endpoint(file.CRIEndpoint).check(); err != nil {
		faults = append(faults, err)
	}
	for _, dir := range runcState(&file.Run) {
		if _, err := filepath.Match(dir, ""); err != nil || !filepath.IsAbs(dir) {
			fault("--runc-state %q: expected absolute paths separated by commas, or none", file.RuncState)
		}
	}
	if file.HousekeepingInterval.Duration < 0 {
		fault("--housekeeping-interval %v: must not be negative", file.HousekeepingInterval.Duration)
	}
	if g := file.HardEvictionGracePeriod; g != nil && (g.Duration < 0 || g.Duration > longestHardGrace) {
		fault("--hard-eviction-grace-period %v: expected 0s to %v", g.Duration, longestHardGrace)
	}
	return errors.Join(faults...)
}

// daemon is everything that `evictd run` runs.
type daemon struct {
	log        *slog.Logger
	node       *node
	cfg        control.Config
	manifests  *pods.Manifests // nil without a directory
	tracker    *tracker
	survey     *collect.Survey
	watch      *collect.Watch
	killer     *kill.Killer
	changes    *undo.Log // nil in a dry run, and where it could not be made
	runtimeDir string
	loop       *control.Loop
	publisher  *publish.Publisher
	scores     *apply.Applier     // nil where nothing may be touched
	cluster    *cluster           // nil where there is neither an API server nor a container runtime
	collector  *garbage.Collector // nil where no container runtime is used
	recorder   *flight.Recorder
	// alone: the API server has not told of its pods in time. It is of follow.
	alone     bool
	flightDir string
	server    *serve.Server
	service   *rt.Service
	// refused is the fault of the configuration that was refused last; nil where
	// the last one was taken.
	refused atomic.Pointer[string]
	running config.EvictdConfiguration
	dryRun  bool
}

// newDaemon checks everything that can be checked before anything is done.
func newDaemon(file *config.EvictdConfiguration, force bool, log *slog.Logger) (*daemon, error) {
	compiled, err := config.Compile(file, nil)
	if err := errors.Join(err, checkRun(file)); err != nil {
		return nil, cli.InFile("configuration", err)
	}
	for _, warning := range compiled.Warnings {
		log.Warn("configuration", "warning", warning)
	}
	d := &daemon{log: log, running: *file, runtimeDir: orElse(file.RuntimeDir, defaultRuntimeDir)}
	if d.service, err = rt.NewService(); err != nil {
		return nil, cli.BadInput(err)
	}
	held, err := serve.TakeHeld()
	if err != nil {
		return nil, cli.BadInput(err)
	}
	d.tracker = &tracker{log: log, survey: collect.NewSurvey(log), ownSession: ownSession()}
	d.survey = d.tracker.survey
	if d.node, err = openNode(&file.Run, &compiled, d.tracker.leaders, log); err != nil {
		return nil, err
	}
	d.dryRun = file.DryRun || !d.node.mode.Acts()
	if kubelet := findKubelet(); kubelet != 0 && d.node.mode == nodestatus.Native && !force {
		return nil, cli.BadInput(fmt.Errorf("--mode native: a kubelet runs here (pid %d) and both would write the same conditions; choose backstop, takeover or observe, or give --force", kubelet))
	}
	if err := mayAct(); err != nil && !d.dryRun && d.node.cgroups != nil {
		return nil, cli.BadInput(err)
	}
	if file.PodManifests != "" {
		if d.manifests, err = pods.New(pods.Config{Dir: file.PodManifests}, log); err != nil {
			return nil, cli.BadInput(err)
		}
	}
	d.tracker.cgroups, d.tracker.processes, d.tracker.nodeFs = d.node.cgroups, d.node.processes, d.node.nodeFs
	if d.node.cgroups != nil {
		d.tracker.podsGroup = podsGroup(d.node, file.PodsCgroup)
	}
	d.tracker.node = d.node.name
	d.tracker.estimates.Capacity = d.node.first.Memory.Limit.Or(0)
	if d.cluster, err = newCluster(file, &compiled, d, log); err != nil {
		return nil, err
	}
	if d.cluster.speaksToRuntime() && d.cluster.runtime.find() != "" {
		d.node.collect.Disks.Await(time.Now().Add(runtimePatience))
	}
	d.server, err = serve.Listen("--status-address", orElse(file.StatusAddress, defaultStatusAddress), held)
	if err != nil {
		return nil, err
	}
	if d.watch, err = collect.NewWatch(d.node.collect, file.KernelMemcgNotification == nil || *file.KernelMemcgNotification, log); err != nil {
		return nil, err
	}
	held.Release(log)
	d.assemble(file, &compiled)
	return d, nil
}

// podsGroup is the group that pods live in, or will: one that was named need
// not exist yet.
func podsGroup(n *node, name string) cgroup.Pods {
	found, err := n.cgroups.FindPods(n.root, name)
	if err == nil {
		return found
	}
	return cgroup.PodsAt(n.root + "/" + orElse(name, "kubepods"))
}

func (d *daemon) assemble(file *config.EvictdConfiguration, compiled *config.Config) {
	d.cfg = d.control(file, compiled)
	d.killer = kill.New(kill.Config{}, d.log)
	ports := control.Ports{Sensor: collect.NewNode(d.node.collect, d.log), Waiter: d.watch, Killer: d.killer, Survey: d.survey, Pulse: d.service}
	if d.node.cgroups != nil {
		ports.Census = d.tracker
	}
	if d.cluster != nil {
		ports.Killer = d.cluster.killer(d.killer, d.tracker.running)
	}
	if d.cluster.speaksToRuntime() {
		d.collector = d.newCollector(compiled)
		ports.Reclaimer = d.collector
	}
	d.loop = control.New(d.cfg, ports, d.log)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if d.cluster != nil {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "evictd_bare_container_oom_events_total", Help: "Times the kernel gave notice that a container run by runc alone was out of memory.",
		}, func() float64 { return float64(d.cluster.agent.OutOfMemory()) }))
	}
	cfg := publish.Config{
		Node: d.node.name, Mode: d.node.mode, Capacity: d.node.capacity, Allocatable: d.node.allocatable,
		NodeFile: file.NodeStatusFile,
	}
	if d.cluster.speaksToAPI() {
		cfg.Cluster, cfg.API = d.cluster.agent, d.cluster.agent.API
	}
	if d.cluster.speaksToRuntime() {
		cfg.Runtime, cfg.Preview = d.runtimeStatus, d.collector.Preview
	}
	d.flightDir = flightDir(file.StateDir)
	d.recorder = flight.New(flight.Config{
		Dir: d.flightDir, Version: version, Eviction: *file, Pods: d.tracker.manifests, Node: d.scenarioNode(),
	}, d.loop, d.log)
	cfg.Recorder = d.recorder
	d.publisher = publish.New(cfg, d.loop, registry, d.log)
	d.server.Handler = d.handler(registry)
}

// scenarioNode is what a scenario says of the node.
func (d *daemon) scenarioNode() simulate.FileNode {
	return simulate.FileNode{Name: d.node.name, Capacity: d.node.scenarioCapacity(), Filesystems: d.node.layout().String()}
}

// control is what the loop needs to know of the settings.
func (d *daemon) control(file *config.EvictdConfiguration, compiled *config.Config) control.Config {
	c := control.Config{
		Eviction:             eviction.New(compiled.Eviction, d.node.layout()),
		MemoryModel:          compiled.MemoryModel,
		HousekeepingInterval: defaultHousekeeping,
		HardGrace:            longestHardGrace,
		DryRun:               d.dryRun,
	}
	if d.cluster != nil {
		c.SoftPatience = d.cluster.patience
	}
	if file.HousekeepingInterval.Duration > 0 {
		c.HousekeepingInterval = file.HousekeepingInterval.Duration
	}
	if g := file.HardEvictionGracePeriod; g != nil {
		c.HardGrace = g.Duration
	}
	return c
}

// run protects the node until ctx ends, and loads the configuration anew when
// hup receives.
func (d *daemon) run(ctx context.Context, hup <-chan os.Signal, load func() (config.EvictdConfiguration, error)) error {
	d.log.Info("protecting the node", "node", d.node.name, "mode", d.node.mode.String(), "dryRun", d.dryRun,
		"layout", d.node.layout().String(), "cgroupRoot", d.node.root, "version", version)
	if d.manifests == nil && !d.cluster.speaksToAPI() && (!d.cluster.speaksToRuntime() || d.cluster.runtime.find() == "") && (d.cluster == nil || !d.cluster.runc) {
		d.log.Warn("no source of pods: give --pod-manifests, --kubeconfig, --server, --cri-endpoint or --runc-state; until then nobody can be evicted")
	}
	if !d.dryRun {
		scores, err := apply.New("/proc", d.log)
		if err != nil {
			return err
		}
		defer scores.Close()
		d.scores = scores
		d.openChanges()
	}
	if err := rt.Prioritize(niceness); err != nil {
		d.log.Info("evictd competes for the processor like everybody else", "error", err)
	}
	// What the loop decides must be carried out while it stops: the killer and
	// the publisher end after it, and after them what they tell.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	telling, hush := context.WithCancel(context.WithoutCancel(ctx))
	defer hush()
	var around, beside, last sync.WaitGroup
	beside.Go(func() { d.killer.Run(after) })
	beside.Go(func() { d.publisher.Run(d.loop.Reports()) })
	last.Go(func() { d.recorder.Run(telling) })
	if d.cluster != nil {
		d.publisher.Resume(d.cluster.agent.Untold())
		last.Go(func() { d.cluster.run(telling) })
	}
	if d.cluster.speaksToAPI() {
		around.Go(func() { d.press(ctx) })
	}
	if d.collector != nil {
		around.Go(func() { _ = d.collector.Run(ctx) })
	}
	around.Go(func() { d.node.collect.Disks.Run(ctx) })
	defer d.watch.Close()
	around.Go(func() { d.watch.Run(ctx) })
	around.Go(func() { d.survey.Run(ctx) })
	around.Go(func() { d.follow(ctx) })
	around.Go(func() { d.enforce(ctx) })
	around.Go(func() { d.reload(ctx, hup, load) })
	around.Go(func() { d.server.Serve(ctx, d.log) })
	around.Go(func() { d.attend(ctx) })
	d.settle(ctx, &around)
	err := d.loop.Run(ctx)
	end()
	around.Wait()
	beside.Wait()
	hush()
	last.Wait()
	if d.changes != nil {
		err = errors.Join(err, d.changes.Close())
	}
	d.log.Info("stopped")
	return err
}

// starting is how long the program's start takes, with the first look at all pods.
const starting = 20 * time.Second

// settle prepares this process and the calling thread for the sensing. Each thing
// that the machine refuses is told, and done without.
func (d *daemon) settle(ctx context.Context, around *sync.WaitGroup) {
	if err := rt.Lock(); err != nil {
		d.log.Info("evictd's memory may be swapped and its program be read from disk again", "error", err)
	}
	around.Go(func() {
		select {
		case <-ctx.Done():
		case <-time.After(starting): // locks less than before
			_ = rt.Lock()
		}
	})
	runtime.LockOSThread()
	thread, err := rt.Elevate()
	if err != nil {
		d.log.Info("the sensing thread competes for the processor like the rest of evictd", "error", err)
		return
	}
	around.Go(func() { thread.Guard(ctx, niceness, d.log) })
}
