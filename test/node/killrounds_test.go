package node_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// TestCampaignKilledProgramsLoseNoPod ends one of the programs by SIGKILL in each
// round, while pods are being scheduled, run and evicted.
func TestCampaignKilledProgramsLoseNoPod(t *testing.T) {
	campaign.Only(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 50, 4)
	killRounds(t, rounds)
}

const (
	// A leaker alone crosses the threshold of its node, and with all the others
	// there does not use up the node, where it is not evicted.
	crowdNode     = 384 * harness.MiB
	crowdHeld     = 280 // MiB, by a leaker
	crowdRounds   = 3   // rounds that a pod stays for
	kindOfCrowd   = "kind"
	leaks, steady = "leaks", "steady"
	tooBig        = "too-big"
)

var crowdHard = sandbox.EvictionHard("memory.available<128Mi")

// crowd is two nodes, a scheduler and an embedded API; its method work starts the
// pods that are bound there.
type crowd struct {
	t         testing.TB
	random    *rand.Rand
	api       *kube.API
	first     *harness.Node
	nodes     map[string]*member
	names     []string // of the nodes
	scheduler *harness.Process
	history   *history
	running   map[types.UID]*harness.Pod
	leaking   map[types.UID]bool
}

// member is one of the nodes and its evictd.
type member struct {
	*harness.Node
	api    *kube.API // as this node's evictd reaches it
	daemon *harness.Evictd
}

func killRounds(t *testing.T, rounds int) {
	if os.Getenv(kube.KubeconfigVariable) != "" {
		t.Skip("skipped: kills the API server, which has to be the embedded one")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := newCrowd(t, rand.New(rand.NewPCG(seed, 0)))
	defer func() {
		if t.Failed() {
			c.log()
		}
	}()
	parts := map[string]func(){"evictd": c.killDaemon, "evictd-agent": c.killAgent, "evictd-scheduler": c.killScheduler, "evictd-apiserver": c.killAPI}
	order := []string{"evictd-apiserver"}
	for range 3 {
		order = append(order, "evictd", "evictd-agent", "evictd-scheduler")
	}
	killed := map[string]int{}
	c.create(tooBig, tooBig, sandbox.Spec{Request: "100Gi"})
	for round := range rounds {
		if round%len(order) == 0 {
			c.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		part := order[round%len(order)]
		killed[part]++
		c.round(round, parts[part])
		if t.Failed() {
			t.Fatalf("in round %d, in which %s was killed", round, part)
		}
	}
	c.finish()
	t.Logf("%d rounds, killed %v: %s", rounds, killed, c.history)
}

func newCrowd(t testing.TB, random *rand.Rand) *crowd {
	t.Helper()
	c := &crowd{t: t, random: random, first: harness.NewNode(t, crowdNode, nodePIDs), nodes: map[string]*member{}, running: map[types.UID]*harness.Pod{}, leaking: map[types.UID]bool{}}
	c.api = kube.New(c.first)
	other := *c.api
	other.Node += "-b"
	other.Flags = []string{c.api.Server, sandbox.NodeName(other.Node), sandbox.StateDir(filepath.Join(c.first.Dir, "state-b"))}
	for _, m := range []*member{{Node: c.first, api: c.api}, {Node: harness.NewNode(t, crowdNode, nodePIDs), api: &other}} {
		c.names = append(c.names, m.api.Node)
		c.nodes[m.api.Node] = m
		c.protect(m)
	}
	c.schedule()
	c.history = follow(t, c.api)
	return c
}

func (c *crowd) protect(m *member) {
	m.daemon = runWith(m.Node, m.api, sandbox.Mode("native"), crowdHard, sandbox.Transition("1s"))
}

func (c *crowd) schedule() {
	socket := filepath.Join(c.first.Dir, "scheduler.sock")
	c.scheduler = harness.Scheduler(c.t, socket, c.api.Server)
}

func (c *crowd) someNode() *member { return c.nodes[c.names[c.random.IntN(len(c.names))]] }

func (c *crowd) killDaemon() {
	m := c.someNode()
	m.daemon.Kill()
	c.protect(m)
}

func (c *crowd) killAgent() { c.someNode().daemon.KillAgent() }

func (c *crowd) killScheduler() {
	c.scheduler.Kill()
	c.schedule()
}

func (c *crowd) killAPI() {
	c.api.Process.Kill()
	c.api.Process = c.first.APIServer()
}

// round creates pods, kills a program meanwhile, and waits until each pod is
// where it belongs.
func (c *crowd) round(round int, kill func()) {
	c.t.Helper()
	c.create(fmt.Sprintf("leaker-%d", round), leaks, sandbox.Spec{Request: "8Mi"})
	for i := range 2 {
		c.create(fmt.Sprintf("steady-%d-%d", round, i), steady, sandbox.Spec{Request: "24Mi"})
	}
	due := time.Now().Add(time.Duration(c.random.IntN(2500)) * time.Millisecond)
	harness.Await(c.t, "the moment of the kill", func() bool {
		c.work()
		return time.Now().After(due)
	})
	kill()
	for name, l := range c.history.all() {
		harness.Await(c.t, "what becomes of "+name, func() bool {
			c.work()
			return len(c.history.faulty()) > 0 || c.settled(l.Labels[kindOfCrowd], c.history.of(l.UID))
		})
	}
	c.checkHistory()
	for i := range 2 {
		c.leave(fmt.Sprintf("steady-%d-%d", round-crowdRounds, i))
	}
	c.leave(fmt.Sprintf("leaker-%d", round-crowdRounds))
}

// settled says whether a pod is where its kind has to end up.
func (c *crowd) settled(kind string, l life) bool {
	p := c.running[l.UID]
	switch kind {
	case leaks:
		return l.failures == 1 && p != nil && !p.Runs()
	case steady:
		return l.Status.Phase == v1.PodRunning && p != nil && p.Runs()
	}
	return l.Spec.NodeName == "" && len(l.Status.Conditions) == 1 && l.Status.Conditions[0].Reason == v1.PodReasonUnschedulable
}

// finish waits until everything is reported, and ends the evictds.
func (c *crowd) finish() {
	c.t.Helper()
	for _, m := range c.nodes {
		m.daemon.Await("everything to be reported", reported)
		m.daemon.Stop()
	}
	for _, state := range []string{"state", "state-b"} {
		j, err := journal.Open(filepath.Join(c.first.Dir, state), slog.New(slog.DiscardHandler))
		require.NoError(c.t, err)
		if left := j.Entries("intent"); len(left) > 0 {
			c.t.Errorf("the journal in %s still has %v", state, left)
		}
	}
	c.checkHistory()
}

// checkHistory fails the test where the history has faults.
func (c *crowd) checkHistory() {
	c.t.Helper()
	for _, fault := range c.history.faulty() {
		c.t.Error(fault)
	}
}

// log logs the pods as they are known and as the API server has them.
func (c *crowd) log() {
	for name, l := range c.history.all() {
		p := c.running[l.UID]
		c.t.Logf("%s on %q: %+v, known for %d failures, process %t", name, l.Spec.NodeName, l.Status, l.failures, p != nil && p.Runs())
	}
	list, err := c.api.CoreV1().Pods(c.api.Namespace).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Log(err)
		return
	}
	for _, pod := range list.Items {
		c.t.Logf("the API server has %s %s on %q: %s %s", pod.Name, pod.ResourceVersion, pod.Spec.NodeName, pod.Status.Phase, pod.Status.Reason)
	}
}

// create hands a pod in that has no node yet.
func (c *crowd) create(name, kind string, spec sandbox.Spec) {
	c.t.Helper()
	m := c.first.Manifest(name, spec)
	m.Namespace, m.UID, m.Labels = c.api.Namespace, "", map[string]string{kindOfCrowd: kind}
	m.Spec.Containers[0].Image, m.Spec.Priority = "none", nil
	if _, err := c.api.CoreV1().Pods(m.Namespace).Create(c.t.Context(), m, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	harness.Await(c.t, "pod "+name+" to be seen", func() bool { _, seen := c.history.all()[name]; return seen })
}

// work does what a kubelet would: it starts the pods that were bound, and says
// so.
func (c *crowd) work() {
	for _, l := range c.history.all() {
		m := c.nodes[l.Spec.NodeName]
		if m != nil && l.Labels[kindOfCrowd] == leaks && l.Status.Phase == v1.PodRunning {
			c.leak(m, l.UID)
		}
		if m == nil || l.Status.Phase != v1.PodPending {
			continue
		}
		if c.running[l.UID] == nil {
			c.running[l.UID] = c.start(m, l.Pod)
		}
		running := l.DeepCopy()
		running.Status.Phase = v1.PodRunning
		_, err := c.api.CoreV1().Pods(l.Namespace).UpdateStatus(c.t.Context(), running, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			c.t.Fatal(err) // no test kills the API server while it works
		}
	}
}

// leak starts a leak once evictd has measured the pod: in the place of a pod that is
// not known others would be evicted.
func (c *crowd) leak(m *member, uid types.UID) {
	if c.leaking[uid] {
		return
	}
	known := slices.ContainsFunc(m.daemon.Status().Ranking[memorySignal], func(r nodestatus.Ranked) bool { return r.UID == uid && r.Usage != "" })
	if known {
		c.leaking[uid] = true
		c.running[uid].Send("leak %dMi %dMi", 100+c.random.IntN(400), crowdHeld)
	}
}

// start runs a pod where it was bound; every other leaker ignores SIGTERM.
func (c *crowd) start(m *member, object *v1.Pod) *harness.Pod {
	p := m.StartIn(object, m.PodGroup(object), nil)
	if object.Labels[kindOfCrowd] == steady {
		p.Do("hold 2Mi")
		return p
	}
	if c.random.IntN(2) == 0 {
		p.Do("ignore-term")
	}
	return p
}

// leave deletes a pod and ends it; one that never was leaves nothing to do.
func (c *crowd) leave(name string) {
	c.t.Helper()
	l, known := c.history.all()[name]
	if !known {
		return
	}
	c.history.expect(l.UID)
	zero := int64(0)
	require.NoError(c.t, c.api.CoreV1().Pods(c.api.Namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	harness.Await(c.t, "pod "+name+" to be gone", func() bool { return c.history.of(l.UID).deleted })
	p := c.running[l.UID]
	delete(c.running, l.UID)
	p.End()
	p.Node.Delete(p.Group)
}
