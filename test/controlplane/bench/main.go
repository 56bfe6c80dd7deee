// Bench measures how many pods a second get bound on a real kube-apiserver, or on
// evictd-apiserver: by a trivial round-robin binder, which shows what the API server itself
// can do, by kube-scheduler and by evictd-scheduler; and how long an attempt takes these
// two. The binder writes what a scheduler has to write for a pod: the claim of a pod that
// has one, and for a pod that preempts the nomination and the victim's condition and
// deletion.
// Nodes and pods are created before the scheduler starts, once for all schedulers: every
// measurement has a server that was started on a copy of the same objects.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/controlplane/scheduler"
)

func main() {
	b := bench{}
	flag.IntVar(&b.nodes, "nodes", 1000, "how many nodes there are")
	flag.IntVar(&b.pods, "pods", 5000, "how many pods wait")
	kinds := flag.String("kinds", "plain,anti,spread", "what the pods ask for; preempt for room on nodes that are full of pods of lower priority, claims for a device each")
	flag.StringVar(&b.on, "on", kubeAPIServer, "the API server: kube-apiserver or evictd-apiserver")
	by := flag.String("by", trivial+",kube-scheduler,evictd-scheduler", "the schedulers to measure, in this order; a scheduler that is named twice is measured twice, and an absolute path is another build of evictd-scheduler")
	flag.DurationVar(&b.patience, "patience", 5*time.Minute, "how long a measurement may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, strings.Split(*kinds, ","), strings.Split(*by, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// trivial is the binder that evaluates nothing.
const trivial = "binder"

// The API servers.
const kubeAPIServer, evictdAPIServer = "kube-apiserver", "evictd-apiserver"

// bench is what all measurements have in common.
type bench struct {
	nodes, pods int
	on          string // an API server
	patience    time.Duration
	dir         string // of evictd's programs
}

func (b *bench) run(ctx context.Context, kinds, binders []string) error {
	dir, err := os.MkdirTemp("", "evictd-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.dir = dir
	if err := sandbox.Build(dir, scheduler.Evictd, evictdAPIServer); err != nil {
		return err
	}
	describeMachine()
	fmt.Printf("%d nodes, %d pods on %s\n", b.nodes, b.pods, b.on)
	fmt.Print("not measured: kubelets and their leases, and watches of clients other than the scheduler and this program\n")
	fmt.Print("CPU s: CPU time of the scheduler, from its start until the last pod is bound\nstart CPU s: CPU time of the scheduler, from its start until the first pod is bound; it lists the cluster in that time\nus CPU/pod: CPU time of the scheduler between the first and the last binding, per pod\n\n")
	fmt.Printf("%-8s %-17s %8s %8s %11s %9s %8s %11s %10s %11s %12s %12s %13s %15s %11s %11s %6s\n", "pods", "bound by", "bound", "pods/s", "first after",
		"attempts", "ms each", "ms for room", "CPU s", "start CPU s", "us CPU/pod", "peak MB", "server CPU s", "server peak MB", "writes each", "events each", "load")
	var summary strings.Builder
	for _, kind := range kinds {
		rates, err := b.measureKind(ctx, kind, binders)
		if err != nil {
			return err
		}
		summarize(&summary, kind, rates)
	}
	fmt.Printf("\n%s", &summary)
	return nil
}

// summarize writes the median rate of each scheduler, and how much that is of the
// binder's.
func summarize(out io.Writer, kind string, rates map[string][]float64) {
	limit := median(rates[trivial])
	for _, binder := range slices.Sorted(maps.Keys(rates)) {
		fmt.Fprintf(out, "%-8s %-17s median of %d: %.0f pods/s", kind, binder, len(rates[binder]), median(rates[binder]))
		if limit > 0 && binder != trivial {
			fmt.Fprintf(out, ", %.0f %% of the binder's", 100*median(rates[binder])/limit)
		}
		fmt.Fprintln(out)
	}
}

// median is 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// each is a number of requests a pod. evictd-apiserver does not count them.
func (b *bench) each(n, of int) string {
	if b.on == evictdAPIServer {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(n)/float64(max(1, of)))
}

func describeMachine() {
	model := "unknown"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(info), "model name\t: "); found {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	fmt.Printf("cpu:    %s, %d cores\n", model, runtime.NumCPU())
	fmt.Printf("go:     %s\n", runtime.Version())
	fmt.Printf("load:   %s\n", load())
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// result of one measurement.
type result struct {
	bound            int
	took             time.Duration // from the first pod bound to the last
	first            time.Duration // from the start of the scheduler to the first pod bound: most of it lists the cluster
	listing          time.Duration // CPU time of the scheduler until then
	cpu, serverCPU   time.Duration
	peak, serverPeak int64 // bytes
	counts           scheduler.Counts
	writes, events   int // requests that the server has answered, from all clients
}

func (r *result) rate() float64 {
	if r.took <= 0 {
		return 0
	}
	return float64(r.bound-1) / r.took.Seconds()
}

// cpuEach is the scheduler's CPU time in microseconds a pod, without that of listing the
// cluster.
func (r *result) cpuEach() float64 {
	return float64((r.cpu - r.listing).Microseconds()) / float64(max(1, r.bound))
}

// measureKind fills a server with the pods of a kind and measures each binder on it. It
// returns the rates by binder.
func (b *bench) measureKind(ctx context.Context, kind string, binders []string) (rates map[string][]float64, err error) {
	server, err := b.server()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if err := b.fill(ctx, server, kind); err != nil {
		return nil, err
	}
	if err := server.Save(); err != nil {
		return nil, err
	}
	rates = map[string][]float64{}
	for _, binder := range binders {
		if err := server.Restore(); err != nil {
			return nil, err
		}
		r, err := b.measure(ctx, server, binder)
		if err != nil {
			return nil, fmt.Errorf("%s by %s: %w", kind, binder, err)
		}
		fmt.Printf("%-8s %-17s %8d %8.0f %10.1fs %9d %8.3f %11.3f %10.1f %11.1f %12.0f %12d %13.1f %15d %11s %11s %6s\n", kind, binder, r.bound, r.rate(), r.first.Seconds(),
			r.counts.Attempts.N, r.counts.Attempts.Each(), r.counts.Room.Each(), r.cpu.Seconds(), r.listing.Seconds(), r.cpuEach(), r.peak>>20, r.serverCPU.Seconds(), r.serverPeak>>20,
			b.each(r.writes, r.bound), b.each(r.events, r.bound), load())
		rates[binder] = append(rates[binder], r.rate())
	}
	return rates, nil
}

// server starts the API server.
func (b *bench) server() (*apiserver.Server, error) {
	switch b.on {
	case kubeAPIServer:
		return apiserver.NewKubeAPIServer()
	case evictdAPIServer:
		return apiserver.NewEmbedded(filepath.Join(b.dir, evictdAPIServer))
	}
	return nil, fmt.Errorf("-on: %q: expected %s or %s", b.on, kubeAPIServer, evictdAPIServer)
}

// connect makes a client with the encoding that schedulers use.
func connect(server *apiserver.Server) (*kubernetes.Clientset, error) {
	config, err := server.Config(apiserver.Admin)
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	return kubernetes.NewForConfig(config)
}

// fill creates nodes, pods of a kind and what these need.
func (b *bench) fill(ctx context.Context, server *apiserver.Server, kind string) error {
	client, err := connect(server)
	if err != nil {
		return err
	}
	if err := createNodes(ctx, client, b.nodes); err != nil {
		return err
	}
	if kind == preempting {
		if err := fillNodes(ctx, client, b.nodes); err != nil {
			return err
		}
	}
	if kind == claiming {
		if err := createDevices(ctx, client, b.nodes, b.pods); err != nil {
			return err
		}
	}
	return createPods(ctx, client, b.pods, kind)
}

// measure has the pods of a filled server bound, and watches.
func (b *bench) measure(ctx context.Context, server *apiserver.Server, by string) (r result, err error) {
	client, err := connect(server)
	if err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, b.patience)
	defer cancel()
	seen, err := watchBindings(ctx, client, b.pods)
	if err != nil {
		return r, err
	}
	writes, events, err := b.countWrites(ctx, client)
	if err != nil {
		return r, err
	}
	before, _ := usage(server.Pid())
	start := time.Now()
	var faulty error
	if by == trivial {
		faulty = bindRoundRobin(ctx, client)
		r.bound, r.took = seen.wait()
	} else {
		r, faulty = b.runScheduler(by, server, seen)
	}
	if r.bound > 0 {
		r.first = seen.first.Sub(start)
	}
	after, peak := usage(server.Pid())
	r.serverCPU, r.serverPeak = after-before, peak
	r.writes, r.events, err = b.countWrites(context.WithoutCancel(ctx), client)
	r.writes -= writes
	r.events -= events
	return r, errors.Join(faulty, err)
}

// runScheduler runs a scheduler until all pods are bound, or time is up.
func (b *bench) runScheduler(name string, server *apiserver.Server, seen *bindings) (r result, err error) {
	program := filepath.Join(b.dir, name)
	switch {
	case filepath.IsAbs(name):
		program = name
	case name == scheduler.Kube:
		if program, err = apiserver.Program(name); err != nil {
			return r, err
		}
	}
	command, page, err := scheduler.Command(program, server.Kubeconfig(apiserver.Admin), b.dir)
	if err != nil {
		return r, err
	}
	log, err := os.Create(filepath.Join(b.dir, filepath.Base(name)+".log"))
	if err != nil {
		return r, err
	}
	defer log.Close()
	command.Stderr = log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return r, err
	}
	select {
	case <-seen.begun:
	case <-seen.done: // none is bound
	}
	r.listing, _ = usage(command.Process.Pid)
	r.bound, r.took = seen.wait()
	r.cpu, r.peak = usage(command.Process.Pid)
	r.counts, err = page.Counts()
	err = errors.Join(err, command.Process.Signal(syscall.SIGTERM))
	_ = command.Wait() // how it ends is not measured
	return r, err
}

// usage is the CPU time a process has used and the most memory it held, in
// bytes; zero where it is gone.
func usage(pid int) (cpu time.Duration, peak int64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// utime and stime, fields 14 and 15 of proc(5), in ticks of 10 ms; the name
	// before them may hold anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var user, system int64
	fmt.Sscan(fields[11], &user)
	fmt.Sscan(fields[12], &system)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Sscan(rest, &peak)
	return time.Duration(user+system) * 10 * time.Millisecond, peak << 10
}
