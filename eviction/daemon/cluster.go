package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/agent"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	defaultSoftDeadline = 30 * time.Second
	softAPI, softDirect = "api", "direct"
	// agentName is found beside evictd's own executable.
	agentName = "evictd-agent"
	// pressEvery is how often the headroom is looked at, and pressAnyway how
	// often it is told though no level has changed: as the Lease is renewed.
	pressEvery  = time.Second
	pressAnyway = 10 * time.Second
)

// hasAPI says whether evictd speaks to an API server.
func hasAPI(run *config.Run) bool { return run.Kubeconfig != "" || run.Server != "" }

// cluster is what evictd has where an agent speaks for it: to an API server, to a
// container runtime, or to both.
type cluster struct {
	agent   *agent.Agent
	program *os.File // the agent's, which run closes
	api     bool
	runtime RuntimeEndpoint
	runc    bool         // an agent is wanted for the containers of runc
	asker   *agent.APIEvictor // nil where soft victims are killed directly
	log     *slog.Logger
	// patience is how long a soft victim may wait for leave; zero asks nobody.
	patience time.Duration
	// unended are the victims of before the start whose end nobody has seen, and
	// that are not killed again yet.
	unended map[types.UID]bool
}

// newCluster checks that the agent is there and that it knows its API server. It
// is nil where there is nobody to speak to.
func newCluster(file *config.EvictdConfiguration, compiled *config.Config, d *Daemon, log *slog.Logger) (*cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", agentName, err)
	}
	program, missing := osprocess.OpenProgram(filepath.Join(filepath.Dir(self), agentName))
	api, runtime := hasAPI(&file.Run), RuntimeEndpoint(file.CRIEndpoint)
	if d.node.cgroups == nil && runtime == "" { // no runtime runs pods of a virtual node
		runtime = noRuntime
	}
	if missing != nil && file.AgentAddress == "" && !api && runtime == "" {
		log.Info("no agent beside evictd: a container runtime would not be used", "error", missing)
		runtime = noRuntime
	}
	runc := runcState(&file.Run)
	if !api && runtime == noRuntime && runc == nil {
		program.Close() // it may be nil
		return nil, nil
	}
	server := []string{"--kubeconfig=" + file.Kubeconfig, "--server=" + file.Server}
	cfg := agent.Config{
		Address:   strings.TrimPrefix(file.AgentAddress, "unix:"),
		Program:   program,
		Arguments: append([]string{"run"}, server...),
		User:      agent.Unprivileged(uint64(Capabilities())),
		Socket:    socketOf(file.Server),
		Node: wire.Node{
			Name: d.node.name, Mode: d.node.mode.String(), Publish: api && !d.dryRun,
			Register: d.node.mode == nodestatus.Native && FindKubelet() == 0,
			Capacity: d.node.capacity, Allocatable: d.node.allocatable,
			StatusFrequency: compiled.NodeStatusUpdateFrequency,
			Kubeconfig:      file.Kubeconfig, Server: file.Server,
			Runc: d.node.cgroups != nil && file.RuncState != noRuntime, RuncState: runc,
		},
	}
	if runtime != noRuntime {
		cfg.Runtime = runtime.Connect
	}
	if api || runtime != "" || runc != nil {
		if missing != nil {
			return nil, fmt.Errorf("--kubeconfig, --server, --cri-endpoint: expected the agent beside evictd: %w", missing)
		}
		if err := checkAgent(&cfg, server); err != nil {
			return nil, err
		}
	}
	c := &cluster{program: program, api: api, runtime: runtime, runc: runc != nil, log: log, unended: map[types.UID]bool{}}
	if !api {
		c.agent = agent.New(cfg, nil, log)
		return c, nil
	}
	c.patience = softPatience(file, d.node.mode)
	c.agent = agent.New(cfg, d.journal, log)
	for _, intent := range c.agent.Unreported() {
		if intent.Over.IsZero() {
			c.unended[intent.UID] = true
		}
	}
	return c, nil
}

// runcState are the directories that were given; nil for none and the usual ones.
func runcState(run *config.Run) []string {
	if run.RuncState == "" || run.RuncState == noRuntime {
		return nil
	}
	return strings.Split(run.RuncState, ",")
}

// speaksToAPI says whether there is an API server; c may be nil.
func (c *cluster) speaksToAPI() bool { return c != nil && c.api }

// speaksToRuntime says whether a container runtime is used, or looked for; c may
// be nil.
func (c *cluster) speaksToRuntime() bool { return c != nil && c.runtime != noRuntime }

// socketOf is the path of an embedded API, empty for any other server.
func socketOf(server string) string {
	path, is := strings.CutPrefix(server, "unix:")
	if !is {
		return ""
	}
	return path
}

// checkAgent has the agent judge its flags as the user that it runs as, so that what
// is wrong with them is known at the start.
func checkAgent(cfg *agent.Config, server []string) error {
	text, err := cfg.Check(server...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && ended.ExitCode() == cli.ExitBadInput {
		return cli.BadInput(errors.New(strings.TrimPrefix(text, agentName+": ")))
	}
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("check the agent: %w: %s", ended, text)
	}
	if err != nil {
		return fmt.Errorf("check the agent: %w", err)
	}
	return nil
}

// killer lets the container runtime stop soft victims, and asks before they are
// killed, where that is configured.
func (c *cluster) killer(below agent.Killer, running func(types.UID) agent.Running) control.Killer {
	if c.speaksToRuntime() {
		below = agent.NewCRIStopper(below, c.agent, running, c.log)
	}
	if c.patience == 0 {
		return below
	}
	c.asker = agent.NewAPIEvictor(below, c.agent, c.patience, c.log)
	return c.asker
}

// softPatience is how long the Eviction API may hold a soft victim back; zero
// where it is not asked.
func softPatience(file *config.EvictdConfiguration, mode nodestatus.Mode) time.Duration {
	way := cmp.Or(file.SoftEviction, map[bool]string{true: softDirect, false: softAPI}[mode.BuiltIn()])
	if way == softDirect {
		return 0
	}
	return cmp.Or(file.SoftEvictionDeadline.Duration, defaultSoftDeadline)
}

// run keeps the agent.
func (c *cluster) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		if c.speaksToAPI() || c.runc || c.runtime.await(ctx) {
			_ = c.agent.Run(ctx)
		}
	})
	if c.asker != nil {
		running.Go(func() { _ = c.asker.Run(ctx) })
	}
	running.Wait()
	c.program.Close() // nil where the service manager starts the agent
}

// resume kills what a daemon before this one had decided to end and did not see
// the end of. A pod that ran on under a status that says it has ended would be
// nobody's.
func (c *cluster) resume(tracked []*trackedPod, killer *kill.Killer) {
	for _, p := range tracked {
		if !c.unended[p.UID] || !p.Terminal || p.Target == nil {
			continue
		}
		delete(c.unended, p.UID)
		victim := kill.Victim{UID: p.UID, Name: p.String(), Grace: LongestHardGrace, Target: p.Target, Usage: p.Usage}
		if err := killer.Kill(victim); err != nil {
			c.log.Error("could not go on with an eviction", "pod", p.String(), "error", err)
		}
	}
}

// press tells the headroom: at once when a level has changed, and regularly.
func (d *Daemon) press(ctx context.Context) {
	tick := time.NewTicker(pressEvery)
	defer tick.Stop()
	var last nodestatus.Headroom
	var told time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := d.loop.Glance(ctx)
		if err != nil {
			return // the loop has ended
		}
		headroom := d.publisher.Headroom(&s)
		turned := !headroom.SameLevels(last) || len(headroom.Evicted) != len(last.Evicted)
		if !turned && s.At.Sub(told) < pressAnyway {
			continue
		}
		annotation, err := headroom.Annotation()
		if err != nil {
			d.log.Error("the headroom cannot be told", "error", err)
			continue
		}
		d.cluster.agent.SetHeadroom(wire.Headroom{Annotation: annotation, Urgent: turned})
		last, told = headroom, s.At
	}
}
