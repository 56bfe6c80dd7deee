package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/cmd/evictd-playground/podprocess"
	"github.com/evictd/evictd/cmd/evictd-playground/runner"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

const (
	nodePIDs = 256
	// memoryAvailable is the signal of all scripts.
	memoryAvailable = "memory.available"
	// processAnnotation has the process id of a pod that a node started itself.
	processAnnotation = "evictd-playground/process"
)

// shape is how nodes differ.
type shape struct {
	name      string
	memory    int64  // bytes
	threshold int64  // of memory.available, below which a pod is evicted; bytes
	cgroup    string // path; "" for none: the node is an amount of memory that its own pods' processes are the only users of
}

// node is a node of this host, its evictd, and its pods: those that the API binds to it,
// which a runner runs, and those that it starts itself.
type node struct {
	shape
	dir     string // of its files
	cgroups *cgroup.System
	group   *cgroup.Group    // nil without a cgroup
	evictd  *process.Service // nil before its start
	page    string           // address of evictd's status page
	runner  *runner.Runner   // nil without an API
	own     []*pod           // that it started itself

	// What was published of the node, and when it first was.
	seen                                *v1.Node
	raised, tainted, cleared, untainted time.Time
}

// newNode makes a node, with files in dir. It is to be removed also after an error.
func newNode(cgroups *cgroup.System, of shape, dir string) (*node, error) {
	n := &node{shape: of, dir: dir, cgroups: cgroups}
	err := os.MkdirAll(n.manifests(), 0o755)
	if err != nil || n.cgroup == "" {
		return n, err
	}
	err = cgroups.Create(n.cgroup, cgroup.Limits{Memory: stats.Known(n.memory), PIDs: stats.Known(nodePIDs)})
	if err == nil {
		n.group, err = cgroups.Open(n.cgroup)
	}
	if err == nil {
		// Enables the controllers down to the pods, where that can be refused.
		err = cgroups.Create(n.pods().Path(), cgroup.Limits{})
	}
	if err == nil {
		_, err = n.available()
	}
	return n, err
}

func (n *node) pods() cgroup.Pods { return cgroup.PodsAt(path.Join(n.cgroup, "kubepods")) }

// Files of the node.

func (n *node) manifests() string           { return filepath.Join(n.dir, "pods") }
func (n *node) manifest(name string) string { return filepath.Join(n.manifests(), name+".yaml") }
func (n *node) configuration() string       { return filepath.Join(n.dir, "evictd.yaml") }
func (n *node) state() string               { return filepath.Join(n.dir, "state") }
func (n *node) statusFile() string          { return filepath.Join(n.dir, "node.yaml") }
func (n *node) socket() string              { return filepath.Join(n.dir, "evictd.sock") }

// startPods starts the pods of manifests, each of which is one process, and writes for
// evictd where they run. It returns once they hold what they shall.
func (n *node) startPods(program string, manifests []byte) error {
	pods, err := manifest.Pods(manifests)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if err := n.startPod(program, &pod{Pod: p}); err != nil {
			return fmt.Errorf("start pod %s: %w", p.Name, err)
		}
	}
	return nil
}

func (n *node) startPod(program string, p *pod) (err error) {
	if p.process, err = podprocess.Start([]string{program, "pod"}, p.Spec.Containers[0].Args...); err != nil {
		return err
	}
	n.own = append(n.own, p)
	pid := strconv.Itoa(p.process.PID())
	p.Annotations = map[string]string{processAnnotation: pid}
	if n.cgroup == "" {
		p.Annotations[pods.SessionAnnotation] = pid
		p.statm, err = os.Open("/proc/" + pid + "/statm")
	} else {
		p.Annotations[pods.CgroupAnnotation] = p.Name
		group := path.Join(n.pods().Path(), p.Name)
		if err = n.cgroups.Create(group, cgroup.Limits{}); err == nil {
			err = n.cgroups.Add(group, p.process.PID())
		}
	}
	if err == nil {
		err = p.process.Fill()
	}
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(p.Pod)
	if err == nil {
		err = os.WriteFile(n.manifest(p.Name), text, 0o644)
	}
	return err
}

func (n *node) signal(p *pod, s syscall.Signal) error {
	if p.process != nil {
		return p.process.Signal(s)
	}
	return n.runner.Signal(p.UID, s)
}

// available is what is left of the node's memory, bytes: the playground's own reading,
// by the kubelet's formula where the node is a cgroup.
func (n *node) available() (int64, error) {
	if n.group == nil {
		left := n.memory
		for _, p := range n.own {
			left -= p.resident()
		}
		return left, nil
	}
	var m stats.Memory
	if err := n.group.Memory(&m); err != nil {
		return 0, err
	}
	available, known := m.Available(stats.WorkingSetModel, false).Get()
	if !known {
		return 0, fmt.Errorf("the memory of cgroup %s cannot be measured", n.cgroup)
	}
	return available, nil
}

// resident is what the pod's process has for itself: what is resident and not shared
// (proc_pid_statm(5), pages). Bytes; zero after its end.
func (p *pod) resident() int64 {
	var buf [128]byte
	length, _ := p.statm.ReadAt(buf[:], 0) // of one that has ended it reads as empty
	fields := strings.Fields(string(buf[:length]))
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseInt(fields[1], 10, 64)
	shared, _ := strconv.ParseInt(fields[2], 10, 64)
	return (resident - shared) * int64(os.Getpagesize())
}

// endless outlasts every script.
const endless = time.Hour

// start starts the node's evictd with further arguments. A condition outlives its cause
// until endConditions is called. A kubelet of this host has another node: hence force.
func (n *node) start(program string, more ...string) error {
	if err := n.configure(endless); err != nil {
		return err
	}
	arguments := []string{
		"run", "--config", n.configuration(), "--node-name", n.name, "--mode", "native", sandbox.Force, "--cri-endpoint", "none",
		"--status-address", "unix:" + n.socket() + "," + n.page, "--state-dir", n.state(), "--housekeeping-interval", "1s",
		"--eviction-hard", n.hard(),
	}
	if n.cgroup != "" {
		arguments = append(arguments, "--cgroup-root", n.cgroup)
	} else {
		arguments = append(arguments, "--node-memory", strconv.FormatInt(n.memory, 10), "--pod-manifests", n.manifests(), "--node-status-file", n.statusFile())
	}
	var err error
	n.evictd, err = process.Serve(n.dir, n.socket(), exec.Command(program, append(arguments, more...)...))
	return err
}

// hard is the node's threshold in the kubelet's grammar.
func (n *node) hard() string { return memoryAvailable + "<" + console.Size(n.threshold) }

// endConditions has conditions outlive their causes by a period from now on.
func (n *node) endConditions(after time.Duration) error {
	if err := n.configure(after); err != nil {
		return err
	}
	return n.evictd.Signal(syscall.SIGHUP)
}

func (n *node) configure(transition time.Duration) error {
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nevictionPressureTransitionPeriod: %v\n", config.APIVersion, config.Kind, transition)
	return os.WriteFile(n.configuration(), []byte(text), 0o644)
}

func (n *node) status(ctx context.Context) (*nodestatus.Status, error) {
	var s nodestatus.Status
	body, err := n.evictd.Get(ctx, "/v1/status")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return &s, err
}

// lostAgent is why the agent of the node's evictd has ended; "" where it has not.
func (n *node) lostAgent(ctx context.Context) string {
	document, err := n.status(ctx)
	if err != nil || document.API == nil || document.API.Restarts == 0 {
		return ""
	}
	return document.API.Error
}

// remove ends the pods that the node started and removes its cgroup. Its files stay.
func (n *node) remove() error {
	for _, p := range n.own {
		p.process.Kill()
		if p.statm != nil {
			p.statm.Close()
		}
	}
	if n.group != nil {
		n.group.Close()
	}
	if n.cgroup == "" {
		return nil
	}
	return n.cgroups.Delete(n.cgroup)
}

// forget has what is published shown again.
func (n *node) forget() {
	n.raised, n.tainted, n.cleared, n.untainted = time.Time{}, time.Time{}, time.Time{}, time.Time{}
}

func (n *node) recovered() bool { return !n.cleared.IsZero() && !n.untainted.IsZero() }

func (n *node) ready() bool {
	return n.seen != nil && slices.ContainsFunc(n.seen.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	}) && !tainted(n.seen, v1.TaintNodeNotReady)
}

func tainted(n *v1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == v1.TaintEffectNoSchedule })
}

func pressed(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
	})
}
