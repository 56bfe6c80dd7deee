package kube_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods/kube"
	"github.com/evictd/evictd/internal/embeddedapi/apitest"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

var await = wait.Until

// sink has the pods of the node as the informer passed them.
type sink struct {
	mu     sync.Mutex
	pods   map[types.UID]*v1.Pod
	synced []string // names of the pods at the end of the first list
	// evicted are the pods that were passed as such.
	evicted []kube.Evicted
	calls   int
}

func (s *sink) Pod(pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods[pod.UID] = pod
	s.calls++
}

func (s *sink) Gone(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

func (s *sink) Evicted(e kube.Evicted) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted = append(s.evicted, e)
}

func (s *sink) Synced() {
	names := s.names()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced = names
}

func (s *sink) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := []string{}
	for _, p := range s.pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func (s *sink) has(names ...string) func() bool {
	return func() bool { return slices.Equal(s.names(), names) }
}

// away is an API server that cannot be reached.
type away func()

func (a away) RoundTrip(*http.Request) (*http.Response, error) {
	a()
	return nil, syscall.ECONNREFUSED
}

func TestAPIServerThatStaysAwayIsLookedForEveryFewSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		last, longest := time.Now(), time.Duration(0)
		client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://away", QPS: -1, Transport: away(func() {
			longest, last = max(longest, time.Since(last)), time.Now()
		})})
		kube.Follow(ctx, client.CoreV1().RESTClient(), kube.Config{Node: "n1"}, &sink{}, slog.New(slog.DiscardHandler))
		if longest = max(longest, time.Since(last)); longest < 5*time.Second || longest > 10*time.Second {
			t.Errorf("no call for %v", longest)
		}
	})
}

// gone is an API server that answers every request by 410 Gone.
type gone struct{ requests *int }

func (g gone) RoundTrip(r *http.Request) (*http.Response, error) {
	*g.requests++
	status := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
	return &http.Response{StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(status)), Request: r}, nil
}

func TestAnAPIServerWhoseAnswersAreGoneIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const span = 10 * time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), span)
		defer cancel()
		requests := 0
		client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://gone", QPS: -1, Transport: gone{&requests}})
		kube.Follow(ctx, client.CoreV1().RESTClient(), kube.Config{Node: "n1"}, &sink{}, slog.New(slog.DiscardHandler))
		if most := int(span/time.Second) + 20; requests > most || requests < 60 {
			t.Errorf("%d requests in %v", requests, span)
		}
	})
}

func TestPodsOfTheNodeAreFollowed(t *testing.T) {
	client := apitest.New(t)
	pods := client.CoreV1().Pods("default")
	create := func(name, node string) *v1.Pod {
		t.Helper()
		pod, err := pods.Create(t.Context(), &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1.LastAppliedConfigAnnotation: "long"}},
			Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		return pod
	}
	patch := func(name, body string, subresources ...string) {
		t.Helper()
		if _, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, subresources...); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		zero := int64(0)
		require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	}
	create("first", "n1")
	create("elsewhere", "n2")
	create("over", "n1")
	patch("over", `{"status":{"phase":"Succeeded"}}`, "status")

	s := &sink{pods: map[types.UID]*v1.Pod{}}
	var kept atomic.Value
	kept.Store(types.UID(""))
	require.Running(t, func(ctx context.Context) error {
		cfg := kube.Config{Node: "n1", Keep: func(uid types.UID) bool { return uid == kept.Load() }}
		kube.Follow(ctx, client.CoreV1().RESTClient(), cfg, s, slog.New(slog.DiscardHandler))
		return nil
	})
	await(t, "all pods there are", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return slices.Equal(s.synced, []string{"first"})
	})
	second := create("second", "n1")
	await(t, "a pod that is new", s.has("first", "second"))
	s.mu.Lock()
	if p := s.pods[second.UID]; p.ManagedFields != nil || p.Annotations[v1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("metadata that is not read: %+v", p.ObjectMeta)
	}
	s.mu.Unlock()

	patch("first", `{"status":{"phase":"Running","message":"x"}}`, "status")
	patch("first", `{"metadata":{"annotations":{"evictd.io/x":"y"}}}`)
	await(t, "a change", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.calls == 3 // the change of the status is none
	})

	kept.Store(second.UID)
	patch("second", `{"status":{"phase":"Failed"}}`, "status")
	patch("first", `{"status":{"phase":"Failed"}}`, "status")
	await(t, "the end of a pod", s.has("second"))
	remove("second")
	again := create("second", "n1")
	await(t, "another pod of the same name", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.pods) == 1 && s.pods[again.UID] != nil
	})
	remove("second")
	await(t, "no pod", s.has())
}

// handed is a pod as the informer passes it.
func handed(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	s, uid := followed(t, pod)
	return s.pods[uid]
}

// followed is what has got a pod of the informer, which has ended.
func followed(t *testing.T, pod *v1.Pod) (s *sink, uid types.UID) {
	t.Helper()
	client := apitest.New(t)
	pod.Name, pod.Namespace, pod.Spec.NodeName = "pod", "default", "n1"
	created, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	created.Status = pod.Status
	if _, err := client.CoreV1().Pods("default").UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	s = &sink{pods: map[types.UID]*v1.Pod{}}
	stop := require.Running(t, func(ctx context.Context) error {
		kube.Follow(ctx, client.CoreV1().RESTClient(), kube.Config{Node: "n1", Keep: func(types.UID) bool { return true }}, s, slog.New(slog.DiscardHandler))
		return nil
	})
	defer stop()
	await(t, "the pod", s.has("pod"))
	return s, created.UID
}

// rule: S9.19
func TestAnEvictionIsReadFromTheStatus(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC))
	condition := []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: at}}
	ofKubelet := func(message string) []v1.PodCondition {
		return []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, LastTransitionTime: at, Reason: v1.PodReasonTerminationByKubelet, Message: message}}
	}
	for _, c := range []struct {
		name, reason, message string
		conditions            []v1.PodCondition
		containers            []v1.ContainerStatus
		want                  string
	}{
		{"node pressure", "Evicted", "The node was low on resource: inodes. Threshold quantity: 10, available: 5. ", condition, nil, "inodes"},
		{"without a condition", "Evicted", "The node was low on resource: memory. ", nil, []v1.ContainerStatus{{Name: "c", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: at}}}}, "memory"},
		{"a container over its limit", "Evicted", `Container c exceeded its local ephemeral storage limit "1Gi". `, condition, nil, "ephemeral-storage"},
		{"a pod over its limit", "Evicted", "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", condition, nil, "ephemeral-storage"},
		{"a volume over its limit", "Evicted", `Usage of EmptyDir volume "v" exceeds the limit "1Gi". `, condition, nil, "ephemeral-storage"},
		{"not admitted", "Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. ", nil, nil, ""},
		{"another end", "DeadlineExceeded", "The node was low on resource: memory. ", condition, nil, ""},
		{"by the condition alone", "", "", ofKubelet("The node was low on resource: memory. Threshold quantity: 10, available: 5. "), nil, "memory"},
		{"the node shuts down", "", "", ofKubelet("Pod was terminated in response to imminent node shutdown."), nil, ""},
		{"preempted by a kubelet", "", "", ofKubelet("Preempted in order to admit critical pod"), nil, ""},
		{"it was near its deadline", "DeadlineExceeded", "", ofKubelet("The node was low on resource: memory. "), nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			phase := v1.PodFailed
			if c.reason == "" {
				phase = v1.PodSucceeded // its containers have exited with 0
			}
			s, uid := followed(t, &v1.Pod{
				Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
				Status: v1.PodStatus{Phase: phase, Reason: c.reason, Message: c.message, Conditions: c.conditions, ContainerStatuses: c.containers},
			})
			if c.want == "" {
				if len(s.evicted) > 0 {
					t.Errorf("evicted %+v; expected none", s.evicted)
				}
				return
			}
			want := kube.Evicted{Namespace: "default", Name: "pod", UID: uid, Eviction: podspec.Eviction{At: at.Time, Resource: v1.ResourceName(c.want)}}
			if len(s.evicted) != 1 || !s.evicted[0].At.Equal(want.At) {
				t.Fatalf("evicted %+v; expected %+v", s.evicted, want)
			}
			if s.evicted[0].At = want.At; s.evicted[0] != want {
				t.Errorf("evicted %+v; expected %+v", s.evicted[0], want)
			}
		})
	}
}

func TestAnnotationsDoNotMakeAPodStatic(t *testing.T) {
	for _, c := range []struct {
		name        string
		annotations map[string]string
		want        eviction.Protection
	}{
		{"a pod that says so", map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}, ""},
		{"the mirror of one that is", map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x", v1.MirrorPodAnnotationKey: "x"}, eviction.MirrorPod},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := handed(t, &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
			})
			if p := eviction.Digest(pod); p.Protection != c.want {
				t.Errorf("protection %q, want %q", p.Protection, c.want)
			}
			if hash, has := pod.Annotations["kubernetes.io/config.hash"]; has != (c.want != "") {
				t.Errorf("hash %q, by which the pod's directories are named", hash)
			}
		})
	}
}

// rule: M.133
func TestAContainerHasTheLimitThatTheKubeletHasApplied(t *testing.T) {
	memory := func(limit string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}}
	}
	applied := func(limit string) []v1.ContainerStatus {
		return []v1.ContainerStatus{{Name: "c", Resources: memory(limit)}}
	}
	pending := []v1.PodCondition{{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: v1.PodReasonDeferred, Message: "no room"}}
	for _, c := range []struct {
		name   string
		status v1.PodStatus
		want   string
	}{
		{"nothing is known", v1.PodStatus{}, "1Gi "},
		{"applied", v1.PodStatus{ContainerStatuses: applied("1Gi")}, "1Gi "},
		{"not applied", v1.PodStatus{ContainerStatuses: applied("512Mi")}, "512Mi the kubelet has not applied its limit of 1Gi"},
		{"pending", v1.PodStatus{ContainerStatuses: applied("512Mi"), Conditions: pending}, "512Mi the kubelet has not completed a resize of the pod: Deferred: no room"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{Status: c.status, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none", Resources: *memory("1Gi")}}}}
			p := eviction.Digest(handed(t, pod))
			if got := eviction.MemoryAvailable.Rounded(p.Containers[0].MemoryLimit) + " " + p.Containers[0].NotResizable; got != c.want {
				t.Errorf("limit %s, want %s", got, c.want)
			}
		})
	}
}

func TestAPodRequestsWhatItWasAllocated(t *testing.T) {
	requests := func(memory, storage string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory), v1.ResourceEphemeralStorage: resource.MustParse(storage)}
	}
	for _, c := range []struct {
		name                   string
		whole, init, container v1.ResourceList
		status                 v1.PodStatus
		want                   string
	}{
		{"nothing is known", nil, nil, requests("1Gi", "2Gi"), v1.PodStatus{}, "1Gi 2Gi"},
		{"a resize that has to wait", nil, nil, requests("1Gi", "2Gi"), v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", AllocatedResources: requests("64Mi", "2Gi")}}}, "64Mi 2Gi"},
		{"of an init container", nil, requests("1Gi", "2Gi"), nil, v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{{Name: "i", AllocatedResources: requests("64Mi", "2Gi")}}}, "64Mi 2Gi"},
		{"of a pod as a whole", requests("1Gi", "2Gi"), nil, nil, v1.PodStatus{AllocatedResources: requests("64Mi", "2Gi")}, "64Mi 0"},
		{"a first request", nil, nil, requests("1Gi", "2Gi"), v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "c", AllocatedResources: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}, "0 2Gi"},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := &v1.Pod{Status: c.status, Spec: v1.PodSpec{
				InitContainers: []v1.Container{{Name: "i", Image: "none", Resources: v1.ResourceRequirements{Requests: c.init}}},
				Containers:     []v1.Container{{Name: "c", Image: "none", Resources: v1.ResourceRequirements{Requests: c.container}}},
			}}
			if c.whole != nil {
				delete(c.whole, v1.ResourceEphemeralStorage)
				pod.Spec.Resources = &v1.ResourceRequirements{Requests: c.whole}
			}
			p := eviction.Digest(handed(t, pod))
			if got := eviction.MemoryAvailable.Quantity(p.MemoryRequest) + " " + eviction.NodeFsAvailable.Quantity(p.StorageRequest); got != c.want {
				t.Errorf("requests %s, want %s", got, c.want)
			}
		})
	}
}
