// Command evictd-agent connects to the API server and the container runtime for
// evictd, which starts it: it lists pods and containers, reports what evictd has decided to
// the API server, and calls the runtime for evictd. It has no privileges, and the node
// is protected without it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/evictd/evictd/cri"
	podskube "github.com/evictd/evictd/eviction/pods/kube"
	"github.com/evictd/evictd/eviction/pods/runc"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/kube"
)

// version is stamped by the linker.
var version = "unknown"

// name is the program's, also where evictd executes it through /proc/self/fd.
const name = "evictd-agent"

// finishTimeout is how long the agent outlives evictd, at most.
const finishTimeout = 1500 * time.Millisecond

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	return cli.New(name, "Connects to the API server and the container runtime for evictd, which starts it", version, runCommand(), checkCommand(), askCommand())
}

// serverFlags adds the flags that name the API server; without them evictd does. It
// is nil where neither does.
func serverFlags(c *cobra.Command) func(*wire.Node) (*rest.Config, error) {
	kubeconfig := c.Flags().String("kubeconfig", "", "kubeconfig of the API server (default that of evictd's configuration)")
	server := c.Flags().String("server", "", "URL of the API server, or unix:PATH of the embedded one (default that of evictd's configuration)")
	return func(node *wire.Node) (*rest.Config, error) {
		if *kubeconfig == "" && *server == "" {
			*kubeconfig, *server = node.Kubeconfig, node.Server
		}
		if *kubeconfig == "" && *server == "" {
			return nil, nil
		}
		cfg, err := kubeclient.Config(*kubeconfig, *server)
		if err != nil {
			return nil, cli.BadInput(err)
		}
		return cfg, nil
	}
}

func runCommand() *cobra.Command {
	c := &cobra.Command{Use: "run", Short: "Serve evictd over the connection that it passes", Args: cobra.NoArgs}
	config := serverFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return run(c.Context(), config, slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)).With("program", name))
	}
	return c
}

func checkCommand() *cobra.Command {
	c := &cobra.Command{Use: "check", Short: "Check the flags without a connection", Args: cobra.NoArgs}
	config := serverFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		_, err := config(&wire.Node{})
		return errors.Join(err, checkSocket(c.Flag("server").Value.String()))
	}
	return c
}

// askPatience is how long a container runtime may take to answer with its version.
const askPatience = 3 * time.Second

// askCommand is what `evictd doctor` runs: it speaks no gRPC itself.
func askCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ask SOCKET...", Short: "Ask the container runtimes behind unix sockets for their versions", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, paths []string) error {
			answers := make([]wire.RuntimeAnswer, len(paths))
			var asking sync.WaitGroup
			for i, path := range paths {
				asking.Go(func() {
					ctx, cancel := context.WithTimeout(c.Context(), askPatience)
					defer cancel()
					name, version, err := cri.Ask(ctx, path)
					if answers[i] = (wire.RuntimeAnswer{Socket: path, Name: name, Version: version}); err != nil {
						answers[i].Error = err.Error()
					}
				})
			}
			asking.Wait()
			return json.NewEncoder(c.OutOrStdout()).Encode(answers)
		},
	}
}

// checkSocket says whether this user can reach the embedded API's socket, which need
// not exist yet. Of any other server it says nothing.
func checkSocket(server string) error {
	path, is := strings.CutPrefix(server, "unix:")
	if !is {
		return nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrPermission) {
		return cli.BadInput(fmt.Errorf("--server %s: the agent's user (uid %d) cannot reach it; expected a path of directories that every user may enter, or CAP_DAC_READ_SEARCH", server, os.Geteuid()))
	}
	return nil
}

// memoryLimit is how much memory the agent tries to stay within, bytes: evictd and its agent
// have 256 MiB together where evictd starts it.
const memoryLimit = 96 << 20

// run serves evictd until the connection closes or ctx ends.
func run(ctx context.Context, config func(*wire.Node) (*rest.Config, error), log *slog.Logger) error {
	socket, dialer, err := wire.Accept()
	if err != nil {
		return fmt.Errorf("evictd starts this program; there is no connection to it: %w", err)
	}
	for _, settle := range []func() error{func() error { return osprocess.SetName(name) }, func() error { return osprocess.Prioritize(0) }, osprocess.ResetOOMScore} {
		if err := settle(); err != nil {
			log.Warn("the agent keeps a setting of evictd's process", "error", err)
		}
	}
	debug.SetMemoryLimit(memoryLimit)
	conn := wire.NewConn[wire.FromAgent, wire.ToAgent](socket, 0)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	first, err := conn.Receive()
	if err != nil || first.Node == nil {
		return fmt.Errorf("evictd has not sent the node: %w", err)
	}
	cfg, err := config(first.Node)
	if err != nil {
		return err
	}
	out := &sender{conn: conn, fail: cancel}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	server, err := serveAPI(ctx, cfg, first.Node, out, &running, log)
	if err != nil {
		return err
	}
	runtime := serveRuntime(ctx, dialer, out, &running, log)
	if first.Node.Runc {
		containers := runc.New(first.Node.RuncState, out.send, log)
		running.Go(func() { containers.Run(ctx) })
	}
	if err := receive(conn, server, runtime); !errors.Is(err, io.EOF) {
		return err
	}
	time.AfterFunc(2*finishTimeout, func() { os.Exit(cli.ExitFault) }) // evictd may ask for the next one by now
	finish(ctx, func() bool { return (server == nil || server.Idle()) && (runtime == nil || runtime.Idle()) })
	return nil
}

// receive passes evictd's messages to the clients until the connection fails; io.EOF is its end.
func receive(conn *wire.Agent, server *kube.Publisher, runtime *cri.Runtime) error {
	for {
		m, err := conn.Receive()
		if err != nil {
			return err
		}
		switch {
		case m.Order != nil && runtime != nil:
			runtime.Execute(*m.Order)
		case m.Refresh && runtime != nil:
			runtime.Refresh()
		case server != nil:
			server.Handle(m)
		}
	}
}

// serveAPI serves with the API server until ctx ends; it is nil without one.
func serveAPI(ctx context.Context, cfg *rest.Config, node *wire.Node, out *sender, running *sync.WaitGroup, log *slog.Logger) (*kube.Publisher, error) {
	if cfg == nil {
		return nil, nil
	}
	klog.SetSlogLogger(log) // of client-go
	requests := kube.NewRequests()
	cfg.UserAgent = name + "/" + version
	cfg.Wrap(requests.Wrap)
	client, err := kube.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	mode, err := nodestatus.ParseMode(node.Mode)
	if err != nil {
		return nil, err
	}
	publisher := kube.New(client, *node, mode, requests, out.send, log)
	running.Go(func() { _ = publisher.Run(ctx) })
	running.Go(func() {
		podskube.Follow(ctx, client.CoreV1().RESTClient(), podskube.Config{Node: node.Name, Keep: publisher.Evicting}, out, log)
	})
	return publisher, nil
}

// surveyPeriod is how often writable layers are measured; containerd refreshes
// its figures every 10 s.
const surveyPeriod = 10 * time.Second

// serveRuntime serves with the container runtime until ctx ends; it is nil without a
// dialer.
func serveRuntime(ctx context.Context, dialer *wire.Dialer, out *sender, running *sync.WaitGroup, log *slog.Logger) *cri.Runtime {
	if dialer == nil {
		return nil
	}
	runtime := cri.New(cri.Config{Dial: dialer.Dial, StatsInterval: surveyPeriod}, out.send, log)
	running.Go(func() { runtime.Run(ctx) })
	return runtime
}

// finish reports to the API server, and orders from the runtime, what evictd has sent before it
// ended: no other process may know of it.
func finish(ctx context.Context, done func() bool) {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sender sends messages to evictd, one at a time. If evictd does not read them, the
// agent ends.
type sender struct {
	mu   sync.Mutex
	conn *wire.Agent
	fail func()
}

func (m *sender) send(up wire.FromAgent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.conn.Send(up); errors.Is(err, os.ErrDeadlineExceeded) {
		m.fail()
	}
}

// Pod, Gone, Evicted and Synced make it a sink of pods.
func (m *sender) Pod(pod *v1.Pod) { m.send(wire.FromAgent{Pod: pod}) }

func (m *sender) Gone(uid types.UID) { m.send(wire.FromAgent{Deleted: uid}) }

func (m *sender) Evicted(e podskube.Evicted) {
	m.send(wire.FromAgent{Evicted: &wire.Evicted{PodName: wire.PodName{UID: e.UID, Namespace: e.Namespace, Name: e.Name}, At: e.At, Resource: e.Resource}})
}

func (m *sender) Synced() { m.send(wire.FromAgent{Synced: true}) }
