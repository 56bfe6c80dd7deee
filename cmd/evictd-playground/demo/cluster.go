// Package demo makes small nodes on this host and plays demo scripts on them. In a whole
// small cluster, which has an embedded API, a scheduler and three nodes that are bounded
// cgroups with an evictd and a runner each, a leak puts a node under pressure, and
// everything follows; or a node stays under pressure, and evicted pods come back to it or
// not. On a single node without cgroups a leak does. Or it makes a node without an evictd.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/runner"
	"github.com/evictd/evictd/cmd/evictd-playground/workloads"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// clusterMemory bounds everything that any pod takes, whatever else fails; bytes.
const clusterMemory = 512 * console.MiB

// A node of the cluster: what it has, and below which available memory a pod is evicted.
const (
	nodeMemory = 256 * console.MiB
	threshold  = 40 * console.MiB
)

// Programs are paths.
type Programs struct {
	Evictd    string // with evictd-agent beside it
	Scheduler string
	APIServer string
	Pod       string // what pods run, as the command pod of evictd-playground
}

// script is one run. The goroutine of Play owns it; the others send what they saw.
type script struct {
	*console.Printer
	programs  Programs
	log       *slog.Logger
	logFile   *os.File       // of the helpers
	cgroups   *cgroup.System // nil without any
	root      string         // path of the cluster's cgroup
	dir       string         // of all files
	published string         // where the state of nodes and pods is
	address   string         // of the API on loopback; empty for none
	page      string         // of the scheduler's: its address
	client    kubernetes.Interface
	services  []service // in the order of their start
	nodes     []*node

	helpers sync.WaitGroup
	helping context.Context // of the helpers, until dismiss
	dismiss context.CancelFunc
	seen    chan func() // shows what happened, in its order
	broken  error       // ends the script

	pods      map[types.UID]*pod
	open      bool // the shop: from now on every step of a pod is shown
	leaking   bool
	gauge     gauge
	replacing string              // a workload whose new pods are shown
	pressed   *node               // that the leaking pod is on
	leaker    types.UID           // the pod that leaks
	biggest   string              // the pod that uses most there
	eviction  nodestatus.Eviction // as evictd reports it, the last
	evictions int                 // that evictd reports
	placed    bool                // every pod where its workload asks for it
	waited    bool                // the newcomer did, when the tolerant pod had been let in
	kept      bool                // the script has been played, and the cluster continues

	storms                     []*storm
	sets                       []*appsv1.ReplicaSet // the cache of storms, and its workers
	newcomer, tolerant, urgent types.UID
	victims                    []types.UID
	crossed, back              time.Time // the threshold, both ways
}

// Cluster is the place of one script.
type Cluster struct{ s *script }

// New makes the cluster's cgroup, at the top of the hierarchy, where it is part of
// no service. The error says why there can be none; then nothing is left of
// it.
func New(t *console.Printer, programs Programs) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("not root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		return nil, err
	}
	s, err := newScript(t, programs, "the API")
	s.cgroups, s.root = cgroups, ownCgroup()
	if err == nil {
		err = cgroups.Create(s.root, cgroup.Limits{Memory: stats.Known(clusterMemory), PIDs: stats.Known(3 * nodePIDs)})
	}
	for _, name := range []string{"node-a", "node-b", "node-c"} {
		if err == nil {
			var n *node
			n, err = newNode(cgroups, shape{name, nodeMemory, threshold, path.Join(s.root, name)}, filepath.Join(s.dir, name))
			s.nodes = append(s.nodes, n)
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return &Cluster{s}, nil
}

// newScript makes the directory of a script, also where that is an error.
func newScript(t *console.Printer, programs Programs, published string) (s *script, err error) {
	s = &script{
		Printer: t, programs: programs, published: published,
		seen: make(chan func(), 256), pods: map[types.UID]*pod{}, dismiss: func() {},
	}
	if s.dir, err = os.MkdirTemp("", "evictd-playground-"); err == nil {
		err = os.Chmod(s.dir, 0o711) // for the agents, which have another user
	}
	return s, err
}

// ownCgroup is the path of the cgroup that this process makes.
func ownCgroup() string { return "/evictd-playground-" + strconv.Itoa(os.Getpid()) }

// Play plays the script, sums up and removes what was made. With keep it leaves the
// cluster running until ctx ends. The error is nil only where everything held,
// console.ErrNotHeld where something did not, and console.ErrInterrupted where ctx
// ended before the script.
func (c *Cluster) Play(ctx context.Context, keep bool) error {
	s := c.s
	return s.run(ctx, keep, s.sumUp, act{"the cluster starts", s.comeUp}, act{"pods are placed", s.place}, act{"a pod leaks", s.leak},
		act{"a newcomer is kept away", s.keepAway}, act{"a tolerating pod is let in", s.letIn}, act{"an urgent pod preempts", s.preempt}, act{"the node recovers", s.heal})
}

// Storm plays another: replacements come back to a node that stays short of
// memory, or do not, as NodePressure is off or on. The error is as Play's.
func (c *Cluster) Storm(ctx context.Context) error {
	s := c.s
	off := &storm{what: "kube-scheduler's, as it is", scheduler: "without-node-pressure", suffix: "-1", returns: true}
	on := &storm{what: "with NodePressure", scheduler: v1.DefaultSchedulerName, suffix: "-2"}
	s.storms = []*storm{off, on}
	return s.run(ctx, false, s.sumUpStorms, act{"the cluster starts", s.gatherClouds}, act{"a storm without NodePressure", s.rage(off)},
		act{"the node recovers", s.calmDown(off)}, act{"a storm with NodePressure", s.rage(on)}, act{"the workers settle", s.settle(on)})
}

// comeUp starts everything. What it starts outlives ctx, until cleanUp.
func (s *script) comeUp(ctx context.Context) error {
	s.Print(time.Now(), console.Blue, "cluster", "cgroup %s (%v): %s in all, three nodes of %s below it", s.root, s.cgroups.Version(), console.Size(clusterMemory), console.Size(nodeMemory))
	s.beginHelping(ctx)
	var err error
	if s.logFile, err = os.Create(filepath.Join(s.dir, "helpers.log")); err != nil {
		return err
	}
	s.log = slog.New(slog.NewTextHandler(s.logFile, nil))
	klog.SetSlogLogger(s.log) // what client-go has to say
	server, err := s.startAPI(ctx)
	if err != nil {
		return err
	}
	s.help(s.helping, s.watch)
	s.help(s.helping, workloads.New(s.client, s.log).Run)
	for _, n := range s.nodes {
		if err := n.start(s.programs.Evictd, "--server", server); err != nil {
			return err
		}
		s.serve("evictd of "+n.name, n.evictd)
		n.runner = runner.New(runner.Config{Node: n.name, Cgroups: s.cgroups, Pods: n.pods(), Image: image, Program: []string{s.programs.Pod, "pod"}}, s.client, s.log)
		s.help(s.helping, n.runner.Run)
	}
	for _, n := range s.nodes {
		lost := ""
		err := s.await(ctx, n.name+" to be ready in the API", func() bool {
			lost = n.lostAgent(ctx)
			return n.ready() || lost != ""
		})
		if err == nil && lost != "" {
			err = fmt.Errorf("%s is not ready: %s", n.name, lost)
		}
		if err != nil {
			return err
		}
	}
	allocatable := s.nodes[0].seen.Status.Allocatable.Memory()
	s.Print(time.Now(), console.Blue, "nodes", "an evictd on each has registered it; they are ready and offer %s to pods: their memory", console.Size(allocatable.Value()))
	s.More("minus what must stay available, %s", s.nodes[0].hard())
	return s.startScheduler(ctx, server)
}

// beginHelping lets helpers run, which outlive ctx until cleanUp.
func (s *script) beginHelping(ctx context.Context) {
	s.helping, s.dismiss = context.WithCancel(context.WithoutCancel(ctx))
}

// startAPI starts the embedded API and returns its address for evictd.
func (s *script) startAPI(ctx context.Context) (server string, err error) {
	socket := filepath.Join(s.dir, "api.sock")
	server = "unix:" + socket
	args := []string{"--data", filepath.Join(s.dir, "api"), "--listen", server}
	if s.address != "" {
		args = append(args, "--listen", s.address)
	}
	api, err := process.Serve(s.dir, socket, exec.Command(s.programs.APIServer, args...))
	if err != nil {
		return "", err
	}
	s.serve(api.Name(), api)
	if err := s.ready(ctx, api); err != nil {
		return "", err
	}
	cfg, err := kubeclient.Config("", server)
	if err == nil {
		s.client, err = kubernetes.NewForConfig(cfg)
	}
	s.Print(time.Now(), console.Blue, "api", "evictd-apiserver runs as process %d", api.PID())
	return server, err
}

func (s *script) startScheduler(ctx context.Context, server string) error {
	socket, config := filepath.Join(s.dir, "scheduler.sock"), filepath.Join(s.dir, "scheduler.yaml")
	if err := os.WriteFile(config, schedulerConfig, 0o644); err != nil {
		return err
	}
	scheduler, err := process.Serve(s.dir, socket, exec.Command(s.programs.Scheduler, "run",
		"--config", config, "--server", server, "--status-address", "unix:"+socket+","+s.page, "--leader-elect=false"))
	if err != nil {
		return err
	}
	s.serve(scheduler.Name(), scheduler)
	if err := s.ready(ctx, scheduler); err != nil {
		return err
	}
	s.Print(time.Now(), console.Blue, "scheduler", "evictd-scheduler runs as process %d", scheduler.PID())
	s.Print(time.Now(), console.Bold, "browser", "these pages show what follows, live:")
	s.showPages()
	return nil
}

// service is a program of the cluster, by the name that the logs have.
type service struct {
	*process.Service
	name string
}

func (s *script) ready(ctx context.Context, service *process.Service) error {
	ctx, cancel := context.WithTimeout(ctx, console.Patience)
	defer cancel()
	return service.Ready(ctx)
}

// serve has the script end with the service.
func (s *script) serve(name string, started *process.Service) {
	s.services = append(s.services, service{started, name})
	s.help(s.helping, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-started.Ended():
			return fmt.Errorf("%s: %w", name, started.Ending())
		}
	})
}

// help runs something beside the script, which ends with its error.
func (s *script) help(ctx context.Context, run func(context.Context) error) {
	s.helpers.Go(func() {
		if err := run(ctx); err != nil {
			s.send(ctx, func() { s.broken = err })
		}
	})
}

// cleanUp ends everything, the last that was started first, removes everything
// that was made, and returns what the programs wrote.
func (s *script) cleanUp() (logs string, err error) {
	var text strings.Builder
	stopping, cancel := context.WithTimeout(context.Background(), console.Patience)
	defer cancel()
	for i, service := range slices.Backward(s.services) {
		if i == 0 { // the API, or the one evictd, which the helpers watch
			s.dismiss()
			s.helpers.Wait()
		}
		_ = service.Stop(stopping) // stopped says how it ended
	}
	for _, service := range s.services {
		fmt.Fprintf(&text, "\n%s:\n%s", service.name, strings.TrimSpace(service.Log()))
	}
	if s.logFile != nil {
		klog.ClearLogger()
		helpers, err := os.ReadFile(s.logFile.Name())
		fmt.Fprintf(&text, "\nrunners and workloads:\n%s", helpers)
		if err := errors.Join(err, s.logFile.Close()); err != nil {
			fmt.Fprintln(&text, err)
		}
	}
	return text.String(), s.remove()
}

// stopped says whether every program ended as it should after SIGTERM.
func (s *script) stopped() bool {
	return !slices.ContainsFunc(s.services, func(service service) bool {
		_, state := service.End()
		return !state.Success()
	})
}

// remove removes what was made. No process may be left.
func (s *script) remove() error {
	var faults []error
	for _, n := range s.nodes {
		faults = append(faults, n.remove())
	}
	if s.root != "" {
		faults = append(faults, s.cgroups.Delete(s.root))
	}
	return errors.Join(append(faults, os.RemoveAll(s.dir))...)
}
