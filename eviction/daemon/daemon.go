package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/checkpoint"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/intent"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom/apply"
	"github.com/evictd/evictd/stats/collect"
)

const (
	// runtimePatience is how long the runtime may take at the start to report its
	// filesystems.
	runtimePatience = 10 * time.Second
	// enforceRetry is the interval at which memory.max of the pods' cgroup is written
	// again while the pods use more (kubelet: 60 s).
	enforceRetry = time.Minute
	// firstList is how long the API server may take at the start to list its pods.
	// After it, pods of the container runtime are estimated, without a priority.
	firstList = 10 * time.Second
	// prepared is the number of pods whose processes are held by pidfds.
	prepared = 16
)

// Config is what a daemon is made from.
type Config struct {
	// File is the configuration, already merged with the flags of the command line. Its
	// fields document their units and defaults; the zero value protects this host by the
	// kubelet's default thresholds.
	File config.EvictdConfiguration
	// Refused has the faults of the configuration in whose place File, an earlier one, is used; nil for none.
	Refused error
	// Accepted is called with each configuration that is put into effect, but for a File in the place of a refused one.
	Accepted func(config.EvictdConfiguration)
	// Reload receives when the configuration is to be loaded again. Nil means never.
	Reload <-chan os.Signal
	// Load loads the configuration again. It is called in a goroutine of Run; Reload
	// needs it.
	Load func() (config.EvictdConfiguration, error)
	// Force allows native mode on a host where a kubelet runs.
	Force bool
	// Version of the program, for logs, metrics, events and recordings.
	Version string

	checks bool // New returns before it opens what only one daemon may have
}

// Defaults of the configuration.
const (
	DefaultStateDir      = "/var/lib/evictd"
	DefaultRuntimeDir    = "/run/evictd"
	DefaultStatusAddress = "unix:/run/evictd/status.sock"
	defaultHousekeeping  = 10 * time.Second
	// LongestHardGrace is the default, and the maximum, of the time from SIGTERM to
	// SIGKILL of a pod that a hard threshold evicts.
	LongestHardGrace = time.Second
)

// Daemon protects one node. New makes it, Run runs it once.
type Daemon struct {
	config     Config
	log        *slog.Logger
	node       *node
	cfg        control.Config
	manifests  *pods.Manifests // nil without a directory
	tracker    *podTracker
	disks      *collect.DiskScanner
	notifier   *collect.MemoryNotifier
	memoryHigh *memoryHigh // nil where memory.high is not set
	steps      *podSteps
	killer     *kill.Killer
	changes    *undo.Log // nil in a dry run, and if it could not be created
	runtimeDir string
	loop       *control.Loop
	publisher  *publish.Publisher
	scores     *apply.Applier     // nil where none are set
	journal    *journal.Journal   // nil if it cannot be opened and no API server needs it
	intents    *intent.File       // nil in a dry run, without a journal, and if it could not be mapped
	keeper     *checkpoint.Keeper // nil without a journal
	priorities *priorities        // owned by syncPods
	cluster    *cluster           // nil without API server and container runtime
	collector  *gc.Collector      // nil without container runtime
	recorder   *recorder.Recorder
	// unprotectedSince is when unprotected first had a reason, zero while it has none, and unprotectedWarned says
	// that it was logged. Owned by syncPods.
	unprotectedSince  time.Time
	unprotectedWarned bool
	// outside receives the cgroups outside of the pods that a reload has changed, for syncPods.
	outside chan []string
	// reportable is when the API server last did not forbid the status of pods, as far as
	// findRestarted knows. Owned by syncPods.
	reportable time.Time
	// unlisted: the API server has not listed its pods within firstList. Owned by
	// syncPods.
	unlisted  bool
	flightDir string
	server    *serve.Server
	page      *page.Page
	service   *osprocess.Service
	// refused has the faults of the configuration that the start or the last reload refused; nil for none.
	refused atomic.Pointer[string]
	// notices is nil in a dry run.
	notices *notices
	dryRun  bool
	// lock is of the cgroup root; nil in a dry run and on a virtual node.
	lock *os.File
	// kernelLog is the kernel's log that the service manager has opened; nil if it has
	// not.
	kernelLog *os.File
}

// New checks the configuration and the host, opens what the daemon needs, and changes
// nothing on the node. An error of the configuration is a cli.BadInput.
func New(cfg Config, log *slog.Logger) (*Daemon, error) {
	file := &cfg.File
	compiled, err := Check(file)
	if err != nil {
		return nil, err
	}
	for _, warning := range compiled.Warnings {
		log.Warn("configuration", "warning", warning)
	}
	d := &Daemon{config: cfg, log: log, runtimeDir: cmp.Or(file.RuntimeDir, DefaultRuntimeDir), outside: make(chan []string, 1)}
	if d.service, err = osprocess.NewService(); err != nil {
		return nil, cli.BadInput(err)
	}
	var held serve.HeldSockets
	if !cfg.checks { // the next New takes them
		var files map[string]*os.File
		if held, files, err = serve.TakeHeld(); err != nil {
			return nil, cli.BadInput(err)
		}
		d.kernelLog = files[heldLog]
	}
	d.tracker = &podTracker{log: log, disks: collect.NewDiskScanner(log), ownSession: ownSession(), logs: cmp.Or(file.PodLogsDir, defaultPodLogs)}
	d.disks = d.tracker.disks
	if d.node, err = openNode(&file.Run, &compiled, d.tracker.leaders, log); err != nil {
		return nil, err
	}
	d.dryRun = file.DryRun || !d.node.mode.Acts()
	if d.node.mode == nodestatus.Native && d.node.kubelet.Found() && !cfg.Force {
		return nil, cli.BadInput(fmt.Errorf("--mode native: %v, and both would write the same conditions; choose backstop, takeover or observe, or give --force", d.node.kubelet))
	}
	if err := d.checkRestarts(&compiled); err != nil {
		return nil, cli.BadInput(err)
	}
	if err := mayAct(); err != nil && !d.dryRun && d.node.cgroups != nil && !cfg.checks {
		return nil, cli.BadInput(err)
	}
	if file.PodManifests != "" {
		if d.manifests, err = pods.New(pods.Config{Dir: file.PodManifests}, log); err != nil {
			return nil, cli.BadInput(err)
		}
	}
	d.tracker.cgroups, d.tracker.processes, d.tracker.nodeFs = d.node.cgroups, d.node.processes, d.node.nodeFs
	if d.node.cgroups != nil {
		d.tracker.podsGroup = newPodsCgroup(d.node, file.PodsCgroup)
	}
	if d.tracker.outside, err = newOutsideGroups(d.node, d.tracker.podsPath(), file.Outside); err != nil {
		return nil, err
	}
	d.tracker.node = d.node.name
	if d.node.alone() {
		d.tracker.plain = new(pods.Plain)
	}
	d.tracker.estimates.Capacity = d.node.first.Memory.Limit.Or(0)
	if cfg.checks {
		_, err = newCluster(file, &compiled, d, log)
		return nil, errors.Join(err, statusTLS(file).Check())
	}
	if d.journal, err = openJournal(file, log); err != nil {
		return nil, err
	}
	var unmapped error // logged where the configuration has no fault
	if d.journal != nil {
		if !d.dryRun {
			unmapped = d.openIntents(file.StateDir)
		}
		d.keeper = checkpoint.New(d.journal, d.intents, osprocess.Now, hasAPI(&file.Run), log)
	}
	d.priorities = newPriorities(d.journal, log)
	if d.cluster, err = newCluster(file, &compiled, d, log); err != nil {
		return nil, err
	}
	d.tracker.outside.finds = d.findsGroups()
	d.tracker.outside.look()
	if d.cluster.hasSocket() {
		d.node.collect.Disks.AwaitRuntime(time.Now().Add(runtimePatience))
	}
	if d.node.cgroups != nil && !d.dryRun {
		if err := d.lockRoot(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	d.server, err = serve.Listen("status-address", statusAddress(file), held, statusTLS(file))
	if err != nil {
		return nil, err
	}
	if d.notifier, err = collect.NewMemoryNotifier(d.node.collect, notifiesOfUsage(file), log); err != nil {
		return nil, err
	}
	held.Release(log)
	if unmapped != nil {
		log.Warn("an eviction is not reported if evictd is killed before the journal has it", "error", unmapped)
	}
	d.assemble(file, &compiled)
	if cfg.Refused != nil {
		d.refuse(cfg.Refused)
	} else {
		cfg.Accepted(*file)
	}
	return d, nil
}

// anotherActs reports whether an evictd that is no dry run protects the node: what it has written is no leftover.
func (d *Daemon) anotherActs() bool {
	if d.node.cgroups == nil {
		return false
	}
	lock, err := d.node.cgroups.Lock(d.node.root)
	if err == nil {
		lock.Close()
	}
	return err != nil
}

func (d *Daemon) assemble(file *config.EvictdConfiguration, compiled *config.Config) {
	d.cfg = d.control(file, compiled)
	d.killer = kill.New(kill.Config{}, d.log)
	sensor := collect.NewNode(d.node.collect, d.log)
	ports := control.Ports{Sensor: sensor, Waiter: d.notifier, Killer: d.killer, DiskScanner: d.disks, Pulse: d.service, CPUTime: osprocess.ThreadTime}
	if d.node.cgroups != nil {
		ports.UnknownPods = d.tracker
	}
	if d.intents != nil {
		ports.Intents = checkpoint.NewIntents(d.intents, hasAPI(&file.Run))
	}
	if d.memoryHigh = d.newMemoryHigh(file); d.memoryHigh != nil {
		ports.Waiter = d.memoryHigh
	}
	d.steps = d.newPodSteps()
	ports.Steps = d.steps
	if d.cluster != nil {
		ports.Killer = d.cluster.killer(d.killer, d.tracker.running)
	}
	if d.cluster.speaksToRuntime() {
		d.collector = d.newCollector(compiled)
		ports.Reclaimer = d.collector
	}
	d.loop = control.New(d.cfg, ports, d.log)
	metrics := metric.NewSet()
	metrics.AddProcess()
	cfg := publish.Config{
		Node: d.node.name, Mode: d.node.mode, Capacity: d.node.capacity, Allocatable: d.node.allocatable,
		NodeFile: file.NodeStatusFile, Version: d.config.Version, PID: os.Getpid(), DryRun: d.dryRun,
	}
	cfg.StateDir, _ = filepath.Abs(cmp.Or(file.StateDir, DefaultStateDir))
	cfg.OutsideUsers = d.outsideUsers
	cfg.Fault = func(s eviction.Signal) error { return sensor.Fault(sourceOf(s)) }
	cfg.Counters.IntentsRefused = d.intents.Refused
	if d.journal != nil {
		cfg.Counters.JournalWritten, cfg.Counters.JournalChanges = d.journal.Durable, d.journal.Changes
	}
	cfg.Counters.PodsWithoutCgroup, cfg.Unprotected = d.podsWithoutCgroup, d.unprotected
	cfg.ConfigurationRefused = d.configurationRefused
	if d.cluster.speaksToAPI() {
		cfg.Cluster, cfg.API = d.cluster.agent, d.cluster.agent.API
	}
	if d.cluster.speaksToRuntime() {
		cfg.Runtime, cfg.Preview, cfg.Evicted = d.runtimeStatus, d.collector.Preview, d.collectEvicted
	}
	d.flightDir = FlightDir(file.StateDir)
	d.recorder = recorder.New(recorder.Config{
		Dir: d.flightDir, Evictions: EvictionsDir(file.StateDir), Version: d.config.Version, Eviction: *file, Pods: d.tracker.manifests, Node: d.scenarioNode(),
	}, d.loop, d.log)
	past := newHistory()
	cfg.Counters.RecordsLost = d.recorder.Lost
	if d.keeper != nil {
		cfg.Recorders = append(cfg.Recorders, d.keeper)
		d.loop.Resume(d.keeper.Resume(&d.cfg.Eviction))
	}
	cfg.Recorders = append(cfg.Recorders, d.recorder, past)
	if d.keeper != nil && d.cluster.speaksToAPI() {
		d.cluster.agent.WithdrawEvictions(d.keeper.Dropped())
	}
	if !d.dryRun {
		d.notices = d.newNotices()
		cfg.Notice = d.notices.deliver
	}
	d.publisher = publish.New(cfg, d.loop, metrics, d.log)
	if d.notices != nil {
		d.notices.reports = d.publisher
	}
	if d.keeper != nil {
		d.publisher.Resume(d.keeper.Evictions())
	}
	d.page = d.newPage(past)
	d.server.Handler = d.handler(metrics)
}

// lockRoot takes the lock of the cgroup root. The error is an fs.ErrNotExist as long as that does not exist.
func (d *Daemon) lockRoot() (err error) {
	if d.lock, err = d.node.cgroups.Lock(d.node.root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("another evictd protects this node, and two would evict for one shortage: %w", err)
	}
	return err
}

// awaitRoot takes the lock of the cgroup root once it exists.
func (d *Daemon) awaitRoot(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(podsCgroupInterval):
		}
		err := d.lockRoot()
		if err == nil {
			d.log.Info("the cgroup taken as the node is found", "cgroup", d.node.root)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
}

// scenarioNode is the node of recorded scenarios.
func (d *Daemon) scenarioNode() simulate.FileNode {
	return simulate.FileNode{Name: d.node.name, Capacity: d.node.scenarioCapacity(), Filesystems: d.node.layout().String()}
}

// Run protects the node until ctx ends. It returns when all of its goroutines have ended.
func (d *Daemon) Run(ctx context.Context) error {
	d.log.Info("protecting the node", "node", d.node.name, "mode", d.node.mode.String(), "dryRun", d.dryRun,
		"layout", d.node.layout().String(), "cgroupRoot", d.node.root, "version", d.config.Version)
	if !d.hasPods() && !d.cluster.hasSocket() {
		d.log.Warn("no source of pods: give --pod-manifests, --kubeconfig, --server, --cri-endpoint or --runc-state; until then no pod can be evicted")
	}
	if d.tracker.outside.finds {
		d.log.Info("containers of Docker, Podman, LXC and systemd-nspawn are guarded; services of systemd are guarded only if the field outside lists them, and nothing else is", "guarded", d.tracker.outside.String())
	}
	if !d.dryRun {
		d.openChanges()
	}
	if !d.dryRun && d.setsScores() {
		scores, err := apply.New("/proc", d.log)
		if err != nil {
			return err
		}
		defer scores.Close()
		d.scores = scores
	}
	if err := osprocess.Prioritize(niceness); err != nil {
		d.log.Info("evictd runs at the priority of other processes", "error", err)
	}
	// What the loop has decided is carried out while it stops: killer and publisher end
	// after it; agent and flight recorder, to which they report, end last.
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	reporting, endReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer endReporting()
	defer d.intents.Close() // nothing is left to write
	stopJournal := d.runJournal()
	defer stopJournal()
	var around, beside, last sync.WaitGroup
	beside.Go(func() { d.killer.Run(after) })
	beside.Go(func() { d.publisher.Run(d.loop.Reports()) })
	if d.notices != nil {
		beside.Go(func() { d.notices.run(after) })
	}
	last.Go(func() { d.recorder.Run(reporting) })
	if d.cluster != nil {
		last.Go(func() { d.cluster.run(reporting) })
	}
	defer d.notifier.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var taken error // the lock, by another evictd
	if d.node.cgroups != nil && !d.dryRun && d.lock == nil {
		around.Go(func() {
			if taken = d.awaitRoot(ctx); taken != nil {
				stop()
			}
		})
	}
	d.startAround(ctx, &around)
	d.prioritize(ctx, &around)
	err := d.loop.Run(ctx)
	end()
	around.Wait()
	err = errors.Join(err, taken)
	beside.Wait()
	d.tracker.close()
	if d.lock != nil {
		d.lock.Close()
	}
	endReporting()
	last.Wait()
	err = errors.Join(err, d.tracker.ban.close(d.keeper.Unreported()))
	if d.changes != nil {
		err = errors.Join(err, d.changes.Close())
	}
	d.log.Info("stopped")
	return err
}

// hasPods reports whether evictd has a source of pods. A container runtime counts once it has answered.
func (d *Daemon) hasPods() bool {
	return d.manifests != nil || d.cluster.speaksToAPI() || d.cluster.speaksToRuntime() && d.cluster.agent.Runtime() != nil || d.cluster != nil && d.cluster.runc
}

// findsGroups reports whether evictd looks for containers by their cgroups, which it does if no source has its pods.
func (d *Daemon) findsGroups() bool {
	return d.tracker.podsGroup != nil && d.tracker.podsGroup.missing() && !d.hasPods() && !d.node.kubelet.Found()
}

// setsScores says whether oom_score_adj is set: beside a kubelet only where configured.
func (d *Daemon) setsScores() bool {
	if is := d.config.File.OOMScoreAdj; is != nil {
		return *is
	}
	return d.node.mode == nodestatus.Native
}

// startAround starts what runs around the loop until ctx ends.
func (d *Daemon) startAround(ctx context.Context, around *sync.WaitGroup) {
	if d.cluster.speaksToAPI() {
		around.Go(func() { d.publishHeadroom(ctx) })
	}
	if d.collector != nil {
		around.Go(func() { _ = d.collector.Run(ctx) })
	}
	around.Go(func() { d.node.collect.Disks.Run(ctx) })
	around.Go(func() { d.notifier.Run(ctx) })
	if d.memoryHigh != nil {
		around.Go(func() { d.memoryHigh.run(ctx) })
	}
	around.Go(func() { d.steps.run(ctx) })
	around.Go(func() { d.disks.Run(ctx) })
	around.Go(func() { d.syncPods(ctx) })
	around.Go(func() { d.enforceAllocatable(ctx) })
	around.Go(func() { d.followOOMKills(ctx) })
	around.Go(func() { d.reload(ctx) })
	around.Go(func() { d.server.Serve(ctx, d.log) })
	around.Go(func() { d.page.Run(ctx) })
	if d.service.Exists() {
		around.Go(func() { d.notifyService(ctx) })
	}
}
