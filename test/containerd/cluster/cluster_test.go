package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

func TestMain(m *testing.M) { os.Exit(node.Main(m)) }

// ownDisk is the size of the filesystem of the first node, in bytes.
const ownDisk = 768 * node.MiB

// shortage is what a victim uses up, and the order by which it does.
type shortage struct {
	signal, resource string
	press            []any
}

// What a victim holds or writes, and how fast, in bytes a second.
const (
	holds = 400 * node.MiB
	rate  = 400 * node.MiB
)

var (
	memory = &shortage{"memory.available", "memory", []any{"leak", rate, holds}}
	disk   = &shortage{"nodefs.available", "ephemeral-storage", []any{"write", "/scratch/file", holds, rate / 4}}
)

// hard is the threshold that a victim crosses, and soft is crossed with a
// grace of 1 s.
var (
	hard = []string{sandbox.EvictionHard("memory.available<150Mi")}
	soft = []string{
		sandbox.EvictionHard("memory.available<40Mi"), sandbox.EvictionSoft("memory.available<150Mi"), sandbox.SoftGrace("memory.available=1s"), sandbox.MaxPodGrace("120"),
	}
	hardDisk = []string{sandbox.EvictionHard("nodefs.available<400Mi")}
)

// scenario is an eviction on the first node.
type scenario struct {
	name     string
	kind     cluster.Kind
	flags    []string // of evictd
	orders   []string // of every pod of the controller
	shortage *shortage
	shape    func(*v1.PodTemplateSpec)
	hook     bool           // the pod has a preStop hook, which runs, and ends by itself in its grace period
	budget   bool           // a PodDisruptionBudget allows no disruption of the pod
	renew    bool           // the token of evictd's agent is replaced by another before the crossing
	kubelet  map[string]any // fields of its configuration
	unused   string         // an image that no pod uses, and that is removed
	wait     time.Duration  // from the start of the kubelet to the crossing
	kill     []string       // what is killed once the victim is chosen, and started again
	stop     func(*stage)   // has the victim use up what there is, stops evictd and starts it again
	offline  bool           // the API server stops before the crossing, until the kubelet has twice tried to start the victim again
	away     time.Duration  // and so much longer
}

var scenarios = []scenario{
	{name: "statefulset", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}},
	{name: "daemonset-and-containerd-is-killed", kind: cluster.DaemonSet, flags: hard, orders: []string{"ignore-term"}, kill: []string{"containerd"}},
	{name: "job-with-a-sidecar", kind: cluster.Job, flags: hard, orders: []string{"on TERM /term 100ms"}, shape: cluster.AddSidecar},
	{name: "deployment-with-a-sidecar-and-evictd-is-killed", kind: cluster.Deployment, flags: hard, orders: []string{"ignore-term"}, shape: cluster.AddSidecar, kill: []string{"evictd"}},
	{name: "job-exits-with-0-and-evictd-is-killed", kind: cluster.Job, flags: hard, kill: []string{"evictd"}},
	{name: "exit-0-on-sigterm", kind: cluster.Deployment, flags: hard},
	{name: "soft-with-a-long-grace", kind: cluster.Deployment, flags: soft, orders: []string{"on TERM /term 10s"}, hook: true},
	{name: "soft-without-eviction-api", kind: cluster.StatefulSet, flags: with(soft, sandbox.SoftEviction("direct")), orders: []string{"on TERM /term 2s"}, hook: true},
	{name: "budget-is-overridden", kind: cluster.Deployment, flags: with(soft, sandbox.SoftDeadline(patience.String())), budget: true},
	{name: "takeover", kind: cluster.StatefulSet, flags: with(hard, sandbox.Mode("takeover")), kubelet: noEviction},
	{name: "disk-and-kubelet-is-killed", kind: cluster.StatefulSet, flags: hardDisk, shortage: disk, shape: cluster.AddScratch, kill: []string{"kubelet"}},
	{name: "token-is-replaced", kind: cluster.Deployment, flags: hard, renew: true},
	{name: "evictd-and-kubelet-are-killed", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, kill: []string{"evictd", "kubelet"}},
	{name: "kube-apiserver-is-killed", kind: cluster.Deployment, flags: hard, orders: []string{"ignore-term"}, kill: []string{"kube-apiserver"}},
	{name: "all-three-are-killed", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, kill: []string{"evictd", "kubelet", "containerd"}},
	{name: "without-api-server", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, offline: true},
}

// patience is how long evictd waits for a budget.
const patience = 3 * time.Second

// with is a list with more in it.
func with[T any](list []T, more ...T) []T { return slices.Concat(list, more) }

var (
	// noEviction is the kubelet's part of takeover, see docs/modes.md.
	noEviction = map[string]any{
		"evictionHard":                map[string]string{"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%", "pid.available": "0%"},
		"imageGCHighThresholdPercent": 100,
	}
	// collects has the kubelet remove unused images where a third of the disk is used. It looks
	// every five minutes.
	collects = map[string]any{"imageGCHighThresholdPercent": 33, "imageGCLowThresholdPercent": 10, "imageMinimumGCAge": "1ms"}
)

// rule: 5.22
// rule: M.120
// rule: M.133
// rule: M.134
// rule: M.149
// rule: M.151
// rule: M.154
// rule: M.156
// rule: M.170
// rule: M.171
func TestWhatTheAPIServerShowsOfAnEvictionIsTrueAndStays(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Disk: ownDisk})
	for _, s := range with(scenarios, stages...) {
		t.Run(s.name, func(t *testing.T) { s.run(c.With(t)) })
	}
	for _, o := range others {
		t.Run(o.name, func(t *testing.T) { o.test(c.With(t)) })
	}
}

func TestCampaignEvictionWhileTheAPIServerIsAway(t *testing.T) {
	campaign.Only(t)
	c := cluster.Start(t, cluster.Options{})
	for _, away := range []time.Duration{5 * time.Second, 30 * time.Second, 150 * time.Second}[:campaign.Size(3, 1)] {
		s := scenario{name: fmt.Sprint("away-", away), kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, offline: true, away: away}
		t.Run(s.name, func(t *testing.T) { s.run(c.With(t)) })
		job := scenario{name: s.name + "-from-a-job", kind: cluster.Job, flags: hard, offline: true, away: away}
		t.Run(job.name, func(t *testing.T) { job.run(c.With(t)) })
	}
}

func TestCampaignDiskBesideTheKubeletsImageCollection(t *testing.T) {
	campaign.Only(t)
	c := cluster.Start(t, cluster.Options{Disk: ownDisk})
	s := scenario{name: "image-collection", kind: cluster.StatefulSet, flags: hardDisk, shortage: disk, shape: cluster.AddScratch, kubelet: collects, unused: campaign.Size("localhost/unused:1", ""), wait: campaign.Size(5*time.Minute-2*time.Second, 0)}
	s.run(c)
}

func (s *scenario) run(c *cluster.Cluster) {
	if s.shortage == nil {
		s.shortage = memory
	}
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	begun := time.Now()
	if s.kubelet != nil {
		c.Reconfigure(s.kubelet)
	}
	flags, renew := s.flags, func() {}
	if s.renew {
		var kubeconfig string
		kubeconfig, renew = keepToken(c)
		flags = with(flags, sandbox.Kubeconfig(kubeconfig))
	}
	e := c.Evictd(flags...)
	c.AwaitNoTaint()
	defer c.Remove(namespace)
	victim, shared := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, s.shortage.signal, victim.UID) })
	renew()
	<-time.After(time.Until(begun.Add(s.wait)))
	before := h.UIDs()
	var eviction nodestatus.Eviction
	if s.stop != nil {
		at := &stage{c: c, h: h, e: e, victim: victim, shared: shared, press: func() { s.press(c, victim) }}
		at.start = func() { at.e = c.Evictd(flags...) }
		s.stop(at)
		e, eviction = at.e, at.e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
	} else {
		e, eviction = s.evict(c, e, flags, victim)
	}
	defer e.Stop()
	away := s.offline || slices.Contains(s.kill, "kube-apiserver") // the shortage may be over when it is back
	if !away {
		h.AwaitTaint(true)
	}
	h.Await("a pod that replaces it to be ready", func(s cluster.Sighting) bool { return cluster.IsReady(s) && !slices.Contains(before, s.UID) })
	e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	if !away {
		h.AwaitTaint(false)
	}
	s.mustBeEvicted(c, h, victim.UID)
	if s.hook {
		mustEndByItself(c, h.Of(victim.UID), shared)
	}
	if overridden := h.Events(victim.UID, "EvictionRequestOverridden"); s.budget != (overridden == 1) {
		c.T.Errorf("%d events EvictionRequestOverridden", overridden)
	}
	if s.budget {
		mustBeHeld(c, h.Of(victim.UID), eviction.Decided.Time)
	}
	if s.unused != "" {
		c.Await("the unused image to be removed", func() bool { return !c.Nodes[0].HasImage(s.unused) })
	}
	h.Restarted = slices.Contains(s.kill, "kube-apiserver")
	h.Check(victim.UID, eviction.Decided.Time)
}

// makeVictim makes the controller and what belongs to it, and waits for its pod on the
// first node. It returns the directory that the pod's preStop hook writes to.
func (s *scenario) makeVictim(c *cluster.Cluster, h *cluster.History, namespace string) (victim cluster.Sighting, shared string) {
	template, shared := c.Template(s.orders...), c.T.TempDir()
	if s.hook {
		cluster.OnStop(&template, shared, "write /shared/hook 1 0")
	}
	if s.stop != nil {
		cluster.Share(&template, shared, "/shared")
	}
	if s.shape != nil {
		s.shape(&template)
	}
	if s.unused != "" {
		c.Nodes[0].Import(node.Image{Name: node.Workload, Pinned: true}, node.Image{Name: s.unused, Bytes: 32 * node.MiB})
	}
	c.Make(s.kind, namespace, 1, template)
	first := c.Nodes[0].Name
	victim = h.Await("a pod to be ready on "+first, func(s cluster.Sighting) bool { return cluster.IsReady(s) && s.Spec.NodeName == first })
	if s.budget {
		c.MakeBudget(namespace)
	}
	return victim, shared
}

// press has the victim use up what there is.
func (s *scenario) press(c *cluster.Cluster, victim cluster.Sighting) {
	c.Pod(victim.Pod).Do(s.shortage.press[0].(string), s.shortage.press[1:]...)
}

// evict has the victim use up what there is, and waits until no process of it is left. It
// returns the evictd that runs then.
func (s *scenario) evict(c *cluster.Cluster, e *node.Evictd, flags []string, victim cluster.Sighting) (now *node.Evictd, eviction nodestatus.Eviction) {
	press := func() { s.press(c, victim) }
	gone := func() { eviction = e.Evictd.AwaitEviction(victim.Pod, harness.Gone) }
	switch {
	case len(s.kill) > 0:
		press()
		eviction = e.Evictd.AwaitEviction(victim.Pod, nil)
		e = s.crash(c, e, flags)
		e.Await("everything to be reported, and nothing to be refused", func(s *nodestatus.Status) bool {
			return s.API.Untold == 0 && len(s.API.Refused) == 0
		})
	case s.offline:
		c.Pause(func() {
			press()
			gone()
			if s.away > 0 {
				<-time.After(s.away)
				return
			}
			tried := func() int { return strings.Count(c.KubeletLog(), `"Failed to create sandbox for pod" err=`) }
			before := tried()
			c.Await("the kubelet to try twice to start the victim", func() bool {
				if c.Runs(victim.Pod) {
					c.T.Fatal("the kubelet has started the victim again")
				}
				return tried()-before >= 2
			})
		})
	default:
		press()
		gone()
	}
	return e, eviction
}

// crash kills programs of the first node, one after the other, and starts them again, the
// last first. It returns the evictd that runs then.
func (s *scenario) crash(c *cluster.Cluster, e *node.Evictd, flags []string) *node.Evictd {
	programs := map[string]struct{ kill, start func() }{
		"evictd":     {e.Kill, func() { e = c.Evictd(flags...) }},
		"kubelet":    {c.KillKubelet, c.StartKubelet},
		"containerd": {c.Nodes[0].Kill, c.Nodes[0].Restart},
		// It forbids first requests, until it has read what it grants.
		"kube-apiserver": {c.API.Kill, c.StartServer},
	}
	for _, name := range s.kill {
		programs[name].kill()
	}
	for _, name := range slices.Backward(s.kill) {
		programs[name].start()
	}
	return e
}

// mustBeEvicted waits until a victim has failed or does not exist, and fails the test where its
// sightings do not say that it was evicted, and why.
func (s *scenario) mustBeEvicted(c *cluster.Cluster, h *cluster.History, victim types.UID) {
	c.T.Helper()
	last := h.Await("the victim to have failed, or to be deleted", func(s cluster.Sighting) bool {
		return s.UID == victim && (s.Deleted || s.Status.Phase == v1.PodFailed)
	})
	why := "The node was low on resource: " + s.shortage.resource + ". "
	target := v1.PodCondition{}
	for _, condition := range last.Status.Conditions {
		if condition.Type == v1.DisruptionTarget {
			target = condition
		}
	}
	if s := last.Status; target.Status != v1.ConditionTrue || !last.Deleted && (s.Phase != v1.PodFailed || s.Reason != "Evicted" || !strings.HasPrefix(s.Message, why)) {
		c.T.Errorf("the pod is %s, reason %q, message %q, with condition %+v", s.Phase, s.Reason, s.Message, target)
	}
}

// mustEndByItself fails the test where the preStop hook of a victim has not run, or its container
// did not exit with 0, by itself.
func mustEndByItself(c *cluster.Cluster, of []cluster.Sighting, shared string) {
	c.T.Helper()
	if _, err := os.Stat(filepath.Join(shared, "hook")); err != nil {
		c.T.Errorf("the preStop hook of the victim has not run: %v", err)
	}
	for _, container := range of[len(of)-1].Status.ContainerStatuses {
		if end := container.State.Terminated; end == nil || end.ExitCode != 0 {
			c.T.Errorf("container %s has not exited with 0: %+v", container.Name, container.State)
		}
	}
}

// mustBeHeld fails the test where a victim was deleted before evictd lost its patience with
// its budget.
func mustBeHeld(c *cluster.Cluster, of []cluster.Sighting, decided time.Time) {
	c.T.Helper()
	for _, s := range of {
		if held := s.At.Sub(decided); s.DeletionTimestamp != nil && held < patience {
			c.T.Errorf("the pod was deleted %v after the decision", held)
		}
	}
}
