package runner_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/runner"
	"github.com/evictd/evictd/internal/embeddedapi/apitest"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// The test's own program is what its pods run, as its first argument says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "pod" {
		os.Exit(live(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// live waits for its end, in the ways that its argument names.
func live(args []string) int {
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	_, _ = io.ReadFull(os.Stdin, make([]byte, 1))
	fmt.Println()
	switch args[0] {
	case "exit":
		code, _ := strconv.Atoi(args[1])
		return code
	case "obey":
		<-terminated
		return 0
	default: // deaf
		select {}
	}
}

// node is a runner on a node of its own.
type node struct {
	t       *testing.T
	client  kubernetes.Interface
	cgroups *cgroup.System
	name    string
	pods    cgroup.Pods
	runner  *runner.Runner
	log     bytes.Buffer
	stop    func()
}

var nodes atomic.Int32 // made so far, for names of their own

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeThatRuns(t, os.Args[0])
}

// newNodeThatRuns has a program for its pods.
func newNodeThatRuns(t *testing.T, program string) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: making cgroups needs root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: no cgroups to use:", err)
	}
	n := &node{t: t, client: apitest.New(t), cgroups: cgroups, name: fmt.Sprintf("evictd-runner-test-%d-%d", os.Getpid(), nodes.Add(1))}
	n.pods = cgroup.PodsAt("/" + n.name + "/kubepods")
	if err := cgroups.Create("/"+n.name, cgroup.Limits{Memory: stats.Known(400 << 20), PIDs: stats.Known(128)}); err != nil {
		_ = cgroups.Delete("/" + n.name)
		t.Skip("skipped: cgroups with limits cannot be made:", err)
	}
	n.runner = runner.New(runner.Config{
		Node: n.name, Cgroups: cgroups, Pods: n.pods, Image: "playground", Program: []string{program, "pod"},
	}, n.client, slog.New(slog.NewTextHandler(&n.log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.runner.Run(ctx) }()
	n.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n.stop = func() {}
	}
	t.Cleanup(func() {
		n.stop()
		if err := cgroups.Delete("/" + n.name); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(n.log.String())
		}
	})
	return n
}

// create creates a pod that is bound to the node.
func (n *node) create(spec string) *v1.Pod {
	n.t.Helper()
	pod := &v1.Pod{}
	require.NoError(n.t, manifest.Decode([]byte("{spec: "+spec+"}"), pod))
	pod.GenerateName, pod.Spec.NodeName = "p-", n.name
	pod, err := n.client.CoreV1().Pods("default").Create(n.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(n.t, err)
	return pod
}

// await polls the API until the pod is as it should be, and returns it.
func (n *node) await(pod *v1.Pod, what string, holds func(*v1.Pod) bool) *v1.Pod {
	n.t.Helper()
	var now *v1.Pod
	wait.Until(n.t, "the pod to be "+what, func() (held bool) {
		var err error
		now, err = n.client.CoreV1().Pods(pod.Namespace).Get(n.t.Context(), pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		return err == nil && holds(now)
	})
	return now
}

func ready(p *v1.Pod) bool {
	return p != nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}

func gone(p *v1.Pod) bool { return p == nil }

// mustHaveNoGroup checks that the pod's group is gone.
func (n *node) mustHaveNoGroup(p *v1.Pod) {
	n.t.Helper()
	if _, err := n.cgroups.Open(n.pods.Pod(string(p.UID), p.Status.QOSClass)); err == nil {
		n.t.Error("the pod's cgroup is left")
	}
}

const obedient = `[{name: app, image: playground, args: [obey]}]`

func TestABoundPodRunsInAGroupAsTheKubeletWouldMakeIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.create(`{containers: [{name: app, image: playground, args: [obey], resources: {requests: {memory: 16Mi, cpu: 100m}, limits: {memory: 32Mi}}}]}`)
	p = n.await(p, "ready", ready)
	if p.Status.Phase != v1.PodRunning || p.Status.StartTime == nil {
		t.Errorf("unexpected status %+v", p.Status)
	}
	group, err := n.cgroups.Open("/" + n.name + "/kubepods/burstable/pod" + string(p.UID) + "/app")
	require.NoError(t, err)
	defer group.Close()
	pids, err := group.AppendProcesses(nil)
	if err != nil || len(pids) != 1 || p.Status.ContainerStatuses[0].ContainerID != fmt.Sprintf("process://%d", pids[0]) {
		t.Errorf("unexpected processes %v, %v; the status says %v", pids, err, p.Status.ContainerStatuses)
	}
	n.mustRead("burstable/pod"+string(p.UID), 32<<20, 102)
	n.mustRead("burstable/pod"+string(p.UID)+"/app", 32<<20, 102)
	n.mustRead("burstable", 0, 102)
	n.stop()
	if err := syscall.Kill(pids[0], 0); err != syscall.ESRCH {
		t.Errorf("the runner left process %d: %v", pids[0], err)
	}
	n.mustHaveNoGroup(p)
}

// mustRead checks a group's limit of memory, unless that is 0, and its shares.
func (n *node) mustRead(group string, memory, shares int64) {
	n.t.Helper()
	if n.cgroups.Version() != cgroup.V1 {
		return // package cgroup says what stands for shares there
	}
	for file, want := range map[string]int64{"memory/memory.limit_in_bytes": memory, "cpu/cpu.shares": shares} {
		controller, name, _ := strings.Cut(file, "/")
		text, err := os.ReadFile(filepath.Join(n.cgroups.Mount(controller), n.pods.Path(), group, name))
		if got := strings.TrimSpace(string(text)); want != 0 && (err != nil || got != fmt.Sprint(want)) {
			n.t.Errorf("%s of %s: got %s, %v, want %d", name, group, got, err, want)
		}
	}
}

func TestADeletedPodEndsWithinItsGrace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	obeys := n.await(n.create(`{containers: `+obedient+`}`), "ready", ready)
	deaf := n.await(n.create(`{terminationGracePeriodSeconds: 1, containers: [{name: app, image: playground, args: [deaf]}]}`), "ready", ready)
	last := map[string]v1.PodStatus{}
	for _, p := range []*v1.Pod{obeys, deaf} {
		watch, err := n.client.CoreV1().Pods(p.Namespace).Watch(t.Context(), metav1.SingleObject(p.ObjectMeta))
		require.NoError(t, err)
		defer watch.Stop()
		require.NoError(t, n.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
		for event := range watch.ResultChan() {
			last[p.Name] = event.Object.(*v1.Pod).Status
			if event.Type == "DELETED" {
				break
			}
		}
		n.await(p, "gone", gone)
		n.mustHaveNoGroup(p)
	}
	for p, want := range map[*v1.Pod]struct {
		phase v1.PodPhase
		code  int32
	}{obeys: {v1.PodSucceeded, 0}, deaf: {v1.PodFailed, 137}} {
		got := last[p.Name]
		if got.Phase != want.phase || got.ContainerStatuses[0].State.Terminated == nil || got.ContainerStatuses[0].State.Terminated.ExitCode != want.code {
			t.Errorf("last status of %s: %+v, want %v", p.Name, got, want)
		}
	}
}

func TestWhatEndsIsStartedAgainAsThePodAsksForIt(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	exits := func(policy string, code int) *v1.Pod {
		return n.create(fmt.Sprintf(`{restartPolicy: %s, containers: [{name: app, image: playground, args: [exit, "%d"]}]}`, policy, code))
	}
	restarted := func(p *v1.Pod) bool {
		return p.Status.ContainerStatuses != nil && p.Status.ContainerStatuses[0].RestartCount > 0
	}
	in := func(phase v1.PodPhase) func(*v1.Pod) bool {
		return func(p *v1.Pod) bool { return p.Status.Phase == phase && !restarted(p) }
	}
	for name, c := range map[string]struct {
		pod   *v1.Pod
		holds func(*v1.Pod) bool
	}{
		"always":                {exits("Always", 0), restarted},
		"on failure, failed":    {exits("OnFailure", 3), restarted},
		"on failure, succeeded": {exits("OnFailure", 0), in(v1.PodSucceeded)},
		"never, succeeded":      {exits("Never", 0), in(v1.PodSucceeded)},
		"never, failed":         {exits("Never", 3), in(v1.PodFailed)},
	} {
		n.await(c.pod, name, c.holds)
	}
}

func TestAnEvictedPodKeepsWhatWasSaidOfItAndIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	p := n.await(n.create(`{containers: `+obedient+`}`), "ready", ready)
	if err := n.runner.Signal(p.UID, syscall.SIGKILL); err != nil { // as evictd would
		t.Fatal(err)
	}
	patch := `{"status":{"phase":"Failed","reason":"Evicted","message":"said","conditions":[{"type":"DisruptionTarget","status":"True","reason":"TerminationByKubelet"}]}}`
	_, err := n.client.CoreV1().Pods(p.Namespace).Patch(t.Context(), p.Name, "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	p = n.await(p, "reported", func(p *v1.Pod) bool { return p.Status.ContainerStatuses[0].State.Terminated != nil })
	s := p.Status
	if s.Phase != v1.PodFailed || s.Reason != "Evicted" || s.Message != "said" || s.ContainerStatuses[0].State.Terminated.ExitCode != 137 || ready(p) ||
		!slices.ContainsFunc(s.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.DisruptionTarget }) {
		t.Errorf("unexpected status %+v", s)
	}
	n.mustHaveNoGroup(p)
	if err := n.runner.Signal(p.UID, syscall.SIGKILL); err != runner.ErrNotRunning {
		t.Errorf("a process of it is left: %v", err)
	}
	require.NoError(t, n.client.CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
	n.await(p, "gone", gone)
}

func TestWhatThePlaygroundCannotRunIsReported(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.mustReport(map[string]string{
		"ErrImagePull":               `{containers: [{name: app, image: nginx}]}`,
		"CreateContainerConfigError": `{containers: [{name: app, image: playground, command: [sh]}]}`,
	})
}

func TestAContainerThatCannotBeStartedIsReported(t *testing.T) {
	t.Parallel()
	n := newNodeThatRuns(t, "/nonexistent")
	n.mustReport(map[string]string{"RunContainerError": `{containers: ` + obedient + `}`})
}

// mustReport creates pods that wait for a reason each.
func (n *node) mustReport(pods map[string]string) {
	n.t.Helper()
	for reason, spec := range pods {
		p := n.await(n.create(spec), "waiting for "+reason, func(p *v1.Pod) bool {
			return p.Status.ContainerStatuses != nil && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Reason == reason
		})
		if p.Status.Phase != v1.PodPending {
			n.t.Errorf("%s: the phase is %s", reason, p.Status.Phase)
		}
	}
}
