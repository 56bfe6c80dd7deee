package scheduleradapter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/embeddedapi/apitest"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// liveCluster is the embedded API; a test may make requests fail.
type liveCluster struct {
	*testing.T
	kubernetes.Interface
	url    string
	refuse atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func newLiveCluster(t *testing.T) *liveCluster {
	t.Helper()
	t.Parallel() // mostly idle
	c := &liveCluster{T: t}
	c.url = apitest.URL(t, func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if refuse := c.refuse.Load(); refuse == nil || !(*refuse)(w, r) {
				api.ServeHTTP(w, r)
			}
		})
	})
	c.Interface = kubernetes.NewForConfigOrDie(&rest.Config{Host: c.url, QPS: -1})
	return c
}

// scheduler is a running scheduler.
type scheduler struct {
	socket string // of the status address
	cancel context.CancelFunc
	ended  chan struct{} // closed before code and errs are read
	code   int
	errs   string
}

// runs starts a scheduler, which the end of the test stops.
func (c *liveCluster) runs(args ...string) *scheduler {
	c.Helper()
	s := &scheduler{socket: filepath.Join(c.TempDir(), "status.sock"), ended: make(chan struct{})}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(s.ended)
		s.code, _, s.errs = execute(ctx, append([]string{"run", "--server", c.url, "--status-address", "unix:" + s.socket}, args...)...)
	}()
	c.Cleanup(func() {
		if s.stop(); c.Failed() {
			c.Logf("the scheduler said\n%s", s.errs)
		}
	})
	return s
}

// stop stops the scheduler and waits.
func (s *scheduler) stop() (code int, errs string) {
	s.cancel()
	return s.wait()
}

// wait waits for the end of the scheduler.
func (s *scheduler) wait() (code int, errs string) {
	<-s.ended
	return s.code, s.errs
}

// until waits for a condition.
func (c *liveCluster) until(what string, is func() bool) {
	c.Helper()
	wait.Until(c, what, is)
}

func must[T any](object T, err error) func(*liveCluster) T {
	return func(c *liveCluster) T {
		c.Helper()
		if err != nil {
			c.Fatal(err)
		}
		return object
	}
}

func (c *liveCluster) node(name string) {
	c.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("4Gi"), v1.ResourcePods: resource.MustParse("10")}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	made := must(c.CoreV1().Nodes().Create(c.Context(), n, metav1.CreateOptions{}))(c)
	made.Status, made.Spec.Taints = n.Status, nil
	must(c.CoreV1().Nodes().Update(c.Context(), made, metav1.UpdateOptions{}))(c)
}

func (c *liveCluster) pod(name string, changes ...func(*v1.Pod)) {
	c.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	p.Spec.TerminationGracePeriodSeconds = new(int64(30))
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "app", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}
	for _, change := range changes {
		change(p)
	}
	must(c.CoreV1().Pods("default").Create(c.Context(), p, metav1.CreateOptions{}))(c)
}

func (c *liveCluster) get(name string) *v1.Pod {
	c.Helper()
	return must(c.CoreV1().Pods("default").Get(c.Context(), name, metav1.GetOptions{}))(c)
}

func (c *liveCluster) bound(name string) {
	c.Helper()
	c.until("pod "+name+" is bound", func() bool { return c.get(name).Spec.NodeName != "" })
}

// awaitEvent waits for an event of a pod.
func (c *liveCluster) awaitEvent(pod, reason, note string) {
	c.Helper()
	c.until("event "+reason+" of "+pod, func() bool {
		for _, e := range must(c.EventsV1().Events("default").List(c.Context(), metav1.ListOptions{}))(c).Items {
			if e.Regarding.Name == pod && e.Reason == reason && strings.Contains(e.Note, note) && e.ReportingController == v1.DefaultSchedulerName {
				return true
			}
		}
		return false
	})
}

func condition(pod *v1.Pod, kind v1.PodConditionType) v1.PodCondition {
	if i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return pod.Status.Conditions[i]
	}
	return v1.PodCondition{}
}

func TestAPodThatMattersMoreTakesTheRoomOfOthers(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	c.runs("--leader-elect=false")
	c.pod("low-1")
	c.pod("low-2")
	c.bound("low-1")
	c.bound("low-2")
	c.pod("high", func(p *v1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" })
	var victim *v1.Pod
	c.until("a victim is on its way out", func() bool {
		for _, name := range []string{"low-1", "low-2"} {
			if pod := c.get(name); pod.DeletionTimestamp != nil {
				victim = pod
			}
		}
		return victim != nil
	})
	if mark := condition(victim, v1.DisruptionTarget); mark.Status != v1.ConditionTrue || mark.Reason != v1.PodReasonPreemptionByScheduler ||
		mark.Message != "default-scheduler: preempting to accommodate a higher priority pod" {
		t.Errorf("the victim is marked %+v", mark)
	}
	c.until("the node is promised", func() bool { return c.get("high").Status.NominatedNodeName == "a" })
	c.awaitEvent(victim.Name, "Preempted", fmt.Sprintf("Preempted by pod %s on node a", c.get("high").UID))
	if err := c.CoreV1().Pods("default").Delete(t.Context(), victim.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil { // as the kubelet does
		t.Fatal(err)
	}
	c.bound("high")
}

// localVolume makes a StorageClass local, whose volumes wait for a pod, and a volume v of it. It
// returns the volume's size and access modes.
func (c *liveCluster) localVolume() (size v1.ResourceList, once []v1.PersistentVolumeAccessMode) {
	must(c.StorageV1().StorageClasses().Create(c.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{}))(c)
	size = v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	once = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	volume := must(c.CoreV1().PersistentVolumes().Create(c.Context(), &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: v1.PersistentVolumeSpec{
		Capacity: size, AccessModes: once, StorageClassName: "local",
		PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/v"}},
	}}, metav1.CreateOptions{}))(c)
	volume.Status.Phase = v1.VolumeAvailable // as the volume controller does
	must(c.CoreV1().PersistentVolumes().UpdateStatus(c.Context(), volume, metav1.UpdateOptions{}))(c)
	return size, once
}

func TestAPodGetsTheVolumeThatWaitsForIt(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	size, once := c.localVolume()
	must(c.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1.PersistentVolumeClaimSpec{
		AccessModes: once, StorageClassName: new("local"), Resources: v1.VolumeResourceRequirements{Requests: size},
	}}, metav1.CreateOptions{}))(c)
	c.runs("--leader-elect=false")
	c.pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	})
	c.until("the volume is for the claim", func() bool {
		ref := must(c.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}))(c).Spec.ClaimRef
		return ref != nil && ref.Name == "c"
	})
	if node := c.get("p").Spec.NodeName; node != "" {
		t.Errorf("the pod is on %s before its claim is bound", node)
	}
	claim := must(c.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "c", metav1.GetOptions{}))(c)
	claim.Spec.VolumeName, claim.Annotations = "v", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	must(c.CoreV1().PersistentVolumeClaims("default").Update(t.Context(), claim, metav1.UpdateOptions{}))(c)
	c.bound("p")
}

// election is a configuration with a renewDeadline.
func (c *liveCluster) election(renewDeadline time.Duration) string {
	c.Helper()
	file := filepath.Join(c.TempDir(), "config.yaml")
	err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: %s, renewDeadline: %s, retryPeriod: 100ms, resourceNamespace: default, resourceName: scheduler}
`, 2*renewDeadline, renewDeadline), 0o644)
	if err != nil {
		c.Fatal(err)
	}
	return file
}

func (c *liveCluster) leader() (identity string) {
	if lease, err := c.CoordinationV1().Leases("default").Get(c.Context(), "scheduler", metav1.GetOptions{}); err == nil && lease.Spec.HolderIdentity != nil {
		identity = *lease.Spec.HolderIdentity
	}
	return identity
}

func TestTheNextSchedulerFollowsALeaderThatEnds(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	config := c.election(wait.Limit)
	s := c.runs("--config", config)
	c.until("there is a leader", func() bool { return c.leader() != "" })
	first := c.leader()
	c.runs("--config", config)
	c.pod("p")
	c.bound("p")
	if code, errs := s.stop(); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	c.until("there is another leader", func() bool { return c.leader() != "" && c.leader() != first })
	c.pod("q")
	c.bound("q")
}

// stealLease makes another client the holder of the Lease.
func (c *liveCluster) stealLease() {
	c.Helper()
	c.until("the Lease is removed", func() bool {
		lease := must(c.CoordinationV1().Leases("default").Get(c.Context(), "scheduler", metav1.GetOptions{}))(c)
		lease.Spec.HolderIdentity = new("thief")
		lease.Spec.LeaseDurationSeconds = new(int32(3600))
		_, err := c.CoordinationV1().Leases("default").Update(c.Context(), lease, metav1.UpdateOptions{})
		return err == nil
	})
}

func TestASchedulerThatLostItsLeaseEnds(t *testing.T) {
	c := newLiveCluster(t)
	s := c.runs("--config", c.election(500*time.Millisecond))
	c.until("there is a leader", func() bool { return c.leader() != "" })
	c.stealLease()
	if code, errs := s.wait(); code != 1 || !strings.Contains(errs, "another scheduler has the lease") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestTheStatusAddressShowsWhenTheClusterIsKnown(t *testing.T) {
	c := newLiveCluster(t)
	closed := func(w http.ResponseWriter, r *http.Request) bool {
		http.Error(w, "not now", http.StatusServiceUnavailable)
		return true
	}
	c.refuse.Store(&closed)
	client := process.Client(c.runs("--leader-elect=false").socket)
	defer client.CloseIdleConnections()
	get := func(path string) string {
		answer, err := client.Get("http://scheduler" + path)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}
	c.until("it is alive", func() bool { return get("/livez") == "200 ok\n" && get("/healthz") == "200 ok\n" })
	if got := get("/readyz"); got != "503 not yet\n" {
		t.Errorf("readyz says %s", got)
	}
	c.refuse.Store(nil)
	c.until("it is ready", func() bool { return get("/readyz") == "200 ok\n" })
	if got := get("/debug/pprof/cmdline"); !strings.HasPrefix(got, "404 ") {
		t.Errorf("pprof without the switch says %s", got)
	}
	if got := get("/metrics"); !strings.Contains(got, "scheduler_pending_pods{queue=\"active\"} 0\n") {
		t.Errorf("metrics are %s", got)
	}
}

// rule: S5.20
func TestProfilesAreServedBehindTheirSwitch(t *testing.T) {
	c := newLiveCluster(t)
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nenableProfiling: true\n"), 0o600))
	client := process.Client(c.runs("--leader-elect=false", "--config", file).socket)
	defer client.CloseIdleConnections()
	c.until("a profile is served", func() bool {
		response, err := client.Get("http://scheduler/debug/pprof/goroutine?debug=1")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return err == nil && response.StatusCode == http.StatusOK && strings.HasPrefix(string(body), "goroutine profile: ")
	})
}
