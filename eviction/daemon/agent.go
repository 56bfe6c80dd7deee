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
	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

const (
	defaultSoftDeadline              = 30 * time.Second
	softAPI, softRequest, softDirect = "api", "request", "direct"
	// agentName is the program beside evictd's own.
	agentName = "evictd-agent"
	// headroomCheck is the interval at which the headroom is computed. headroomRenewal is
	// the interval at which it is published while no level changes, that of the Lease.
	headroomCheck   = time.Second
	headroomRenewal = 10 * time.Second
)

// hasAPI says whether an API server is configured.
func hasAPI(run *config.Run) bool { return run.Kubeconfig != "" || run.Server != "" }

// cluster is the agent's connection to an API server, a container runtime, or both.
type cluster struct {
	agent   *agent.Agent
	program *os.File // the agent's; run closes it
	api     bool
	runtime RuntimeEndpoint
	runc    bool              // containers of runc are configured
	evictor *agent.APIEvictor // nil if soft victims are killed without the Eviction API
	log     *slog.Logger
	// soft is how soft victims are evicted; without patience nothing is requested.
	soft agent.SoftEviction
}

// newCluster checks that the agent's program exists and accepts its flags. It is nil without
// API server and container runtime.
func newCluster(file *config.EvictdConfiguration, compiled *config.Config, d *Daemon, log *slog.Logger) (*cluster, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", agentName, err)
	}
	program, missing := osprocess.OpenProgram(filepath.Join(filepath.Dir(self), agentName))
	api, runtime := hasAPI(&file.Run), RuntimeEndpoint(file.CRIEndpoint)
	if d.node.cgroups == nil && runtime == "" { // a virtual node has no runtime
		runtime = noRuntime
	}
	if missing != nil && file.AgentAddress == "" && !api && runtime == "" {
		log.Info("there is no agent beside evictd: no container runtime is used", "error", missing)
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
			Name: d.node.name, Mode: d.node.mode.String(), Publish: api && !d.dryRun, RemoveLeftover: api && !(d.dryRun && d.anotherActs()),
			Register: d.node.alone(),
			Capacity: d.node.capacity, Allocatable: d.node.allocatable,
			StatusFrequency: compiled.NodeStatusUpdateFrequency,
			EvictedPodTTL:   compiled.EvictedPodTTL, EvictedPodsPerOwner: compiled.EvictedPodsPerOwner,
			Kubeconfig: file.Kubeconfig, Server: file.Server,
			Runc: d.node.cgroups != nil && file.RuncState != noRuntime, RuncState: runc,
		},
	}
	if compiled.EvictedPodTTL+time.Duration(compiled.EvictedPodsPerOwner) > 0 && !(cfg.Node.Register && cfg.Node.Publish) {
		log.Warn("evictedPodTTL and evictedPodsPerOwner have no effect: evicted pods are deleted in native mode with an API server and without a kubelet only")
	}
	cfg.Gone, cfg.Evicted = d.confirmGone, d.recordEvicted
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
	c := &cluster{program: program, api: api, runtime: runtime, runc: runc != nil, log: log}
	if api {
		c.soft = softEviction(file, d.node.mode, !cfg.Node.Register)
	}
	c.agent = agent.New(cfg, d.keeper, log)
	return c, nil
}

// runcState are the configured directories; nil for none and for the usual ones.
func runcState(run *config.Run) []string {
	if run.RuncState == "" || run.RuncState == noRuntime {
		return nil
	}
	return strings.Split(run.RuncState, ",")
}

// speaksToAPI says whether an API server is configured; c may be nil.
func (c *cluster) speaksToAPI() bool { return c != nil && c.api }

// speaksToRuntime says whether a container runtime is used or looked for; c may be nil.
func (c *cluster) speaksToRuntime() bool { return c != nil && c.runtime != noRuntime }

// hasSocket reports whether there is a socket of a container runtime, which need not answer.
func (c *cluster) hasSocket() bool { return c.speaksToRuntime() && c.runtime.find() != "" }

// socketOf is the path of an embedded API, empty for any other server.
func socketOf(server string) string {
	path, is := strings.CutPrefix(server, "unix:")
	if !is {
		return ""
	}
	return path
}

// checkAgent validates the agent's flags by its program, as its user.
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

// killer is below, preceded by StopContainer of the CRI and by the Eviction API for soft
// victims, where these are configured.
func (c *cluster) killer(below agent.Killer, running func(uid types.UID, container string) agent.Running) control.Killer {
	if c.speaksToRuntime() {
		below = agent.NewCRIStopper(below, c.agent, running, c.log)
	}
	if c.soft.Patience == 0 {
		return below
	}
	c.evictor = agent.NewAPIEvictor(below, c.agent, c.soft, c.log)
	return c.evictor
}

// softEviction is how soft victims are evicted. Without a kubelet `direct` requests nothing.
func softEviction(file *config.EvictdConfiguration, mode nodestatus.Mode, kubelet bool) agent.SoftEviction {
	soft := agent.SoftEviction{Kubelet: kubelet}
	soft.Direct = cmp.Or(file.SoftEviction, map[bool]string{true: softDirect, false: softAPI}[mode.BuiltIn()]) == softDirect
	soft.Object = file.SoftEviction == softRequest
	switch {
	case !soft.Direct:
		soft.Patience = cmp.Or(file.SoftEvictionDeadline.Duration, defaultSoftDeadline)
	case kubelet:
		soft.Patience = agent.DeletionPatience
	}
	return soft
}

// run runs the agent until ctx ends.
func (c *cluster) run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() {
		if c.speaksToAPI() || c.runc || c.runtime.await(ctx) {
			_ = c.agent.Run(ctx)
		}
	})
	if c.evictor != nil {
		running.Go(func() { _ = c.evictor.Run(ctx) })
	}
	running.Wait()
	c.program.Close() // nil if the service manager starts the agent
}

// confirmGone has the loop forget a victim of before the start whose pod the API server does
// not have any more: no source of pods may ever know it. A victim that is being killed ends
// by itself.
func (d *Daemon) confirmGone(i wire.Intent) {
	if !d.killer.Kills(i.UID) {
		_ = d.killer.Kill(kill.Victim{UID: i.UID, Name: i.Namespace + "/" + i.Name, Target: new(noProcess)}) // fails at the end of evictd
	}
}

// recordEvicted has the recorder keep an eviction that the API server shows.
func (d *Daemon) recordEvicted(e wire.Evicted) {
	d.recorder.Evicted(recorder.Eviction{
		By: recorder.ByKubelet, Pod: e.Namespace + "/" + e.Name, UID: e.UID, Resource: string(e.Resource), At: nodestatus.Time{Time: e.At},
	})
}

// noProcess is the kill.Target of a pod that does not exist.
type noProcess struct{}

func (*noProcess) AppendProcesses(pids []int) ([]int, error) { return pids, nil }
func (*noProcess) Kill() error                               { return nil }
func (*noProcess) Populated() (bool, error)                  { return false, nil }

// publishHeadroom sends the headroom annotation when a level has changed, and every
// headroomRenewal.
func (d *Daemon) publishHeadroom(ctx context.Context) {
	tick := time.NewTicker(headroomCheck)
	defer tick.Stop()
	var last nodestatus.Headroom
	var published time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s, err := d.loop.Next(ctx)
		if err != nil {
			return // the loop has ended
		}
		headroom := d.publisher.Headroom(&s)
		changed := !headroom.SameLevels(last) || len(headroom.Evicted) != len(last.Evicted)
		if !changed && s.At.Sub(published) < headroomRenewal {
			continue
		}
		annotation, err := headroom.Annotation()
		if err != nil {
			d.log.Error("the headroom cannot be encoded", "error", err)
			continue
		}
		d.cluster.agent.SetHeadroom(wire.Headroom{Annotation: annotation, Urgent: changed})
		last, published = headroom, s.At
	}
}
