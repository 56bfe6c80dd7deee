package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/kube"
)

var await = wait.Until

// fault answers the requests that it is for in the API server's place.
type fault struct {
	method, path string // a part of the path
	left         atomic.Int64
	answer       func(*http.Request) (*http.Response, error) // nil, nil lets it pass
}

// faulty is a transport with faults.
type faulty struct {
	next http.RoundTripper
	*fixture
}

func (f faulty) RoundTrip(request *http.Request) (*http.Response, error) {
	f.mu.Lock()
	faults := slices.Clone(f.faults)
	f.mu.Unlock()
	for _, fault := range faults {
		if request.Method == fault.method && strings.Contains(request.URL.Path, fault.path) && fault.left.Add(-1) >= 0 {
			if response, err := fault.answer(request); response != nil || err != nil {
				return response, err
			}
		}
	}
	return f.next.RoundTrip(request)
}

// status answers with an API error.
func status(code int, reason metav1.StatusReason) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		body := fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"made up for %s","reason":%q,"code":%d}`, r.URL.Path, reason, code)
		return &http.Response{
			StatusCode: code, Status: fmt.Sprint(code), Request: r, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)),
		}, nil
	}
}

func cut(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") }

// fixture is a Publisher, an API server, and a transport between them that fails as set.
type fixture struct {
	t         *testing.T
	api       kubernetes.Interface
	publisher *kube.Publisher
	node      string

	mu       sync.Mutex
	faults   []*fault
	reported []string
	state    wire.API
	log      bytes.Buffer
}

var fixtures atomic.Int64

func newFixture(t *testing.T, mode nodestatus.Mode, faults ...*fault) *fixture {
	t.Helper()
	return newBoundedFixture(t, mode, nodestatus.EvictedPods{}, faults...)
}

func newBoundedFixture(t *testing.T, mode nodestatus.Mode, bounds nodestatus.EvictedPods, faults ...*fault) *fixture {
	t.Helper()
	cfg := serve(t)
	w := &fixture{t: t, faults: faults, api: kubernetes.NewForConfigOrDie(cfg), node: fmt.Sprintf("n%d-%d", time.Now().UnixNano()%1e9, fixtures.Add(1))}
	requests := kube.NewRequests()
	faultyCfg := rest.CopyConfig(cfg)
	faultyCfg.Wrap(requests.Wrap)
	faultyCfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{next, w} })
	memory := v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	node := wire.Node{
		Name: w.node, Mode: mode.String(), Publish: true, Register: mode == nodestatus.Native,
		Capacity: memory, Allocatable: memory, StatusFrequency: 100 * time.Millisecond, EvictedPodTTL: bounds.TTL, EvictedPodsPerOwner: bounds.PerOwner,
	}
	if !node.Register {
		object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
		if _, err := w.api.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.publisher = kube.New(kubernetes.NewForConfigOrDie(faultyCfg), node, mode, requests, w.receive, slog.New(slog.NewTextHandler(w, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.publisher.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Logf("log:\n%s", w.log.String())
		}
	})
	return w
}

// Write is the log's.
func (w *fixture) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(text)
}

func (w *fixture) receive(m wire.FromAgent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Reported != "" {
		w.reported = append(w.reported, m.Reported)
	}
	if m.API != nil {
		w.state = *m.API
	}
}

func (w *fixture) publisherHas(holds func(*wire.API) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return holds(&w.state)
}

func (w *fixture) hasReported(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.reported, id)
}

// fail puts an answer in the way of so many requests.
func (w *fixture) fail(times int64, method, path string, answer func(*http.Request) (*http.Response, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, newFault(times, method, path, answer))
}

func newFault(times int64, method, path string, answer func(*http.Request) (*http.Response, error)) *fault {
	f := &fault{method: method, path: path, answer: answer}
	f.left.Store(times)
	return f
}

// stand says how the node stands.
func (w *fixture) stand(mode nodestatus.Mode, memory bool) {
	raised := nodestatus.Raised{eviction.MemoryPressure: memory}
	now := time.Now()
	var messages [eviction.NumConditions]string
	w.publisher.Handle(wire.ToAgent{Conditions: &wire.NodeConditions{At: wire.Instant{Time: now}, Raised: raised, Conditions: mode.Conditions(raised, messages, nil, now)}})
}

func (w *fixture) seen() *v1.Node {
	w.t.Helper()
	node, err := w.api.CoreV1().Nodes().Get(w.t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		return &v1.Node{}
	}
	return node
}

func (w *fixture) patchNode(kind types.PatchType, body string, subresources ...string) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Nodes().Patch(w.t.Context(), w.node, kind, []byte(body), metav1.PatchOptions{}, subresources...); err != nil {
		w.t.Error(err)
	}
}

func statusOf(node *v1.Node, kind v1.NodeConditionType) v1.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func tainted(node *v1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool { return t.Key == key && t.Effect == v1.TaintEffectNoSchedule })
}

const (
	ownMemory = v1.NodeConditionType("evictd.io/MemoryPressure")
	ownTaint  = "evictd.io/memory-pressure"
)

func TestPressureIsReportedWhateverFailsFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer func(*http.Request) (*http.Response, error)
	}{
		{"a storm of 429", status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
		{"an error of the server", status(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		{"a conflict", status(http.StatusConflict, metav1.StatusReasonConflict)},
		{"a cut connection", cut},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, nodestatus.Backstop)
			w.fail(3, http.MethodPatch, "/nodes/"+w.node, c.answer)
			w.stand(nodestatus.Backstop, true)
			await(t, "condition and taint", func() bool {
				node := w.seen()
				return statusOf(node, ownMemory) == v1.ConditionTrue && tainted(node, ownTaint)
			})
			w.stand(nodestatus.Backstop, false)
			await(t, "neither", func() bool {
				node := w.seen()
				return statusOf(node, ownMemory) == v1.ConditionFalse && !tainted(node, ownTaint)
			})
		})
	}
}

func TestTaintNeverShowsBeforeItsCondition(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Native)
	w.stand(nodestatus.Native, false)
	await(t, "the node", func() bool { return statusOf(w.seen(), v1.NodeMemoryPressure) == v1.ConditionFalse })
	watch, err := w.api.CoreV1().Nodes().Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: w.node}))
	require.NoError(t, err)
	defer watch.Stop()
	w.fail(3, http.MethodPatch, "/nodes/"+w.node+"/status", cut)
	w.stand(nodestatus.Native, true)
	for event := range watch.ResultChan() {
		node := event.Object.(*v1.Node)
		raised, tainted := statusOf(node, v1.NodeMemoryPressure) == v1.ConditionTrue, tainted(node, v1.TaintNodeMemoryPressure)
		if tainted && !raised {
			t.Fatalf("the taint came first: %+v", node.Status.Conditions)
		}
		if tainted {
			return
		}
	}
}

func TestTaintThatRacesWithAnotherWriterLosesNeither(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	w.stand(nodestatus.Backstop, false)
	await(t, "the condition", func() bool { return statusOf(w.seen(), ownMemory) == v1.ConditionFalse })
	var before sync.Once
	w.fail(1<<30, http.MethodPatch, "/nodes/"+w.node, func(request *http.Request) (*http.Response, error) {
		if !strings.HasSuffix(request.URL.Path, "/status") {
			before.Do(func() {
				w.patchNode(types.MergePatchType, `{"spec":{"taints":[{"key":"example.com/other","effect":"NoSchedule"}]}}`)
			})
		}
		return nil, nil
	})
	w.stand(nodestatus.Backstop, true)
	await(t, "both taints", func() bool { return tainted(w.seen(), ownTaint) && tainted(w.seen(), "example.com/other") })
	w.patchNode(types.MergePatchType, `{"spec":{"taints":[{"key":"example.com/other","effect":"NoSchedule"}]}}`)
	await(t, "the taint that was removed", func() bool { return tainted(w.seen(), ownTaint) })
	if node := w.seen(); !tainted(node, "example.com/other") {
		t.Errorf("taints %v", node.Spec.Taints)
	}
}

func TestIdentityThatMayNotTaintStillReportsConditions(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	w.fail(1<<30, http.MethodPatch, "/nodes/"+w.node, func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/status") {
			return nil, nil
		}
		return status(http.StatusForbidden, metav1.StatusReasonForbidden)(request)
	})
	w.stand(nodestatus.Backstop, true)
	await(t, "the condition", func() bool { return statusOf(w.seen(), ownMemory) == v1.ConditionTrue })
	await(t, "the refusal to be reported", func() bool {
		return w.publisherHas(func(s *wire.API) bool { return s.Refused["taints"] != "" && s.Connected })
	})
	if node := w.seen(); tainted(node, ownTaint) {
		t.Error("the taint was written")
	}
}

func TestRivalOfTheConditionsIsReportedAndNotFought(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Native)
	w.stand(nodestatus.Native, true)
	await(t, "the taint", func() bool { return tainted(w.seen(), v1.TaintNodeMemoryPressure) })
	turns := 0
	await(t, "the conflict to be reported", func() bool {
		// The publisher cannot see a turn that a write of its own crossed.
		if statusOf(w.seen(), v1.NodeMemoryPressure) == v1.ConditionTrue {
			w.patchNode(types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"MemoryPressure","status":"False","reason":"KubeletHasSufficientMemory"}]}}`, "status")
			turns++
		}
		return w.publisherHas(func(s *wire.API) bool { return strings.Contains(s.Conflict, "another eviction manager") })
	})
	if turns < 3 {
		t.Errorf("the conflict was reported after %d turns, want at least 3", turns)
	}
	version, renewed := "", w.renewed()
	for _, raised := range []bool{false, true, false, true} { // each renews the lease, too
		w.stand(nodestatus.Native, raised)
		before := renewed
		await(t, "the lease to be renewed", func() bool {
			renewed = w.renewed()
			return renewed.After(before)
		})
		if version == "" { // a write that had begun before the conflict has ended
			version = w.seen().ResourceVersion
		}
	}
	if now := w.seen(); now.ResourceVersion != version {
		t.Errorf("the node was written again: %v", now.Status.Conditions)
	}
}

// renewed is when the lease of the node was renewed.
func (w *fixture) renewed() time.Time {
	w.t.Helper()
	lease, err := w.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(w.t.Context(), w.node, metav1.GetOptions{})
	if err != nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// rule: M.161
func TestAConditionOfAnEarlierThresholdIsCleared(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	const contention = "evictd.io/MemoryContention"
	w.patchNode(types.StrategicMergePatchType, `{"status":{"conditions":[{"type":"`+contention+`","status":"True","reason":"EvictdHasMemoryContention"}]}}`, "status")
	w.patchNode(types.MergePatchType, `{"spec":{"taints":[{"key":"evictd.io/memory-contention","effect":"NoSchedule"},{"key":"x","effect":"NoExecute"}]}}`)
	w.stand(nodestatus.Backstop, false)
	await(t, "the condition to be false", func() bool { return statusOf(w.seen(), contention) == v1.ConditionFalse })
	await(t, "the taint to be removed", func() bool { return len(w.seen().Spec.Taints) == 1 })
}

func TestLeaseOfANodeWhoseLoopHangsExpires(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	old := time.Now().Add(-time.Minute)
	w.publisher.Handle(wire.ToAgent{Conditions: &wire.NodeConditions{At: wire.Instant{Time: old}, Conditions: nodestatus.Backstop.Conditions(nodestatus.Raised{}, [eviction.NumConditions]string{}, nil, old)}})
	await(t, "the condition", func() bool { return statusOf(w.seen(), ownMemory) == v1.ConditionFalse })
	leases := w.api.CoordinationV1().Leases("evictd-system")
	if lease, err := leases.Get(t.Context(), "evictd-"+w.node, metav1.GetOptions{}); err == nil {
		t.Errorf("lease %+v", lease.Spec)
	}
	w.publisher.Handle(wire.ToAgent{Headroom: &wire.Headroom{Annotation: "{}"}})
	w.stand(nodestatus.Backstop, true)
	await(t, "the lease with its headroom", func() bool {
		lease, err := leases.Get(t.Context(), "evictd-"+w.node, metav1.GetOptions{})
		return err == nil && *lease.Spec.LeaseDurationSeconds == 40 && lease.Annotations[nodestatus.HeadroomAnnotation] == "{}"
	})
}
