package kube_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// evicted makes a pod and the intent to end it.
func (w *fixture) evicted(name string) (*v1.Pod, *wire.Intent) {
	w.t.Helper()
	pod, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.node + name},
		Spec:       v1.PodSpec{NodeName: w.node, Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return pod, &wire.Intent{
		ID: "intent-" + pod.Name, UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Decided: time.Now(),
		Message: "The node was low on resource: memory. ", Annotations: map[string]string{"starved_resource": "memory"}, DisruptionTarget: true,
	}
}

func (w *fixture) pod(name string) *v1.Pod {
	w.t.Helper()
	pod, err := w.api.CoreV1().Pods("default").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

// isTarget says whether the pod has the condition that says why it is being evicted.
func isTarget(pod *v1.Pod, message string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == eviction.ReasonTerminationByKubelet && c.Message == message
	})
}

// rule: 5.1
// rule: 5.4
// rule: 5.5
func TestPodIsATargetAtTheDecisionAndHasFailedAtTheEndWhateverBlanksThat(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	pod, intent := w.evicted("")
	reported := func() bool {
		pod := w.pod(pod.Name)
		return pod.Status.Phase == v1.PodFailed && pod.Status.Reason == "Evicted" && pod.Status.Message == intent.Message && isTarget(pod, intent.Message)
	}
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the condition", func() bool { return isTarget(w.pod(pod.Name), intent.Message) })
	if phase := w.pod(pod.Name).Status.Phase; phase == v1.PodFailed {
		t.Error("the pod has failed before its end")
	}
	gone := *intent
	gone.Ended = time.Now().Add(-time.Hour) // the window begins with the write, not with the end
	w.publisher.Handle(wire.ToAgent{Intent: &gone})
	await(t, "the status", reported)
	blank := []byte(`{"status":{"reason":"","message":""}}`)
	if _, err := w.api.CoreV1().Pods("default").Patch(t.Context(), pod.Name, types.MergePatchType, blank, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	await(t, "the status again", reported)
	await(t, "the intent to be done with", func() bool { return w.hasReported(intent.ID) })
	if !reported() {
		t.Errorf("status %+v", w.pod(pod.Name).Status)
	}
	events, err := w.api.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	count := 0
	for _, e := range events.Items {
		if e.Regarding.UID == pod.UID {
			count++
			if e.Reason != "Evicted" || e.Type != v1.EventTypeWarning || e.Note != strings.TrimSpace(intent.Message) && e.Note != intent.Message || e.Annotations["starved_resource"] != "memory" {
				t.Errorf("event %+v", e)
			}
		}
	}
	if count != 1 {
		t.Errorf("%d events", count)
	}
}

// rule: M.171
func TestPodThatTheKubeletHasReportedAsSucceededStaysThat(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	pod, intent := w.evicted("")
	succeeded := []byte(`{"status":{"phase":"Succeeded"}}`)
	if _, err := w.api.CoreV1().Pods("default").Patch(t.Context(), pod.Name, types.MergePatchType, succeeded, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	intent.Ended = time.Now()
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the intent to be done with", func() bool { return w.hasReported(intent.ID) })
	if pod := w.pod(pod.Name); pod.Status.Phase != v1.PodSucceeded || pod.Status.Reason != "" || !isTarget(pod, intent.Message) {
		t.Errorf("status %+v", pod.Status)
	}
}

// The API server refuses the first requests for the taint in each case.
//
// rule: M.86
func TestPodIsReplacedOnlyOnceTheNodeHasItsTaint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		times  int64 // that the taint is refused
		answer func(*http.Request) (*http.Response, error)
	}{
		{"a connection is cut", 1, cut},
		{"it was away for long", 6, cut}, // then the taint is tried again after seconds
		{"it has just started", 1, status(http.StatusForbidden, metav1.StatusReasonForbidden)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, nodestatus.Backstop)
			w.stand(nodestatus.Backstop, false)
			await(t, "the condition", func() bool { return statusOf(w.seen(), ownMemory) == v1.ConditionFalse })
			failed, failing := w.evicted("failed")
			evicted, evicting := w.evicted("evicted")
			var refused atomic.Int64
			var asked atomic.Bool
			w.fail(1<<30, http.MethodPatch, "/nodes/"+w.node, func(r *http.Request) (*http.Response, error) {
				if strings.HasSuffix(r.URL.Path, "/status") || refused.Add(1) > c.times {
					return nil, nil
				}
				return c.answer(r)
			})
			untainted := func(what string) {
				if !tainted(w.seen(), ownTaint) {
					t.Errorf("the pod %s before the node has its taint", what)
				}
			}
			w.fail(1<<30, http.MethodPatch, "/pods/"+failed.Name, func(r *http.Request) (*http.Response, error) {
				if strings.Contains(w.bodyOf(r), `"Failed"`) {
					untainted("has failed")
				}
				return nil, nil
			})
			w.fail(1<<30, http.MethodPost, "/pods/"+evicted.Name+"/eviction", func(*http.Request) (*http.Response, error) {
				untainted("is evicted")
				asked.Store(true)
				return nil, nil
			})
			w.stand(nodestatus.Backstop, true)
			await(t, "the taint to be refused", func() bool { return refused.Load() >= c.times })
			failing.Ended, evicting.Requested = time.Now(), true
			w.publisher.Handle(wire.ToAgent{EvictionRequest: &wire.EvictionRequest{
				UID: evicted.UID, Pod: evicted.Namespace + "/" + evicted.Name, Deadline: wire.Instant{Time: time.Now().Add(wait.Limit)},
			}})
			w.publisher.Handle(wire.ToAgent{Intent: evicting})
			w.publisher.Handle(wire.ToAgent{Intent: failing})
			await(t, "the status", func() bool { return w.pod(failed.Name).Status.Phase == v1.PodFailed })
			await(t, "the request of the eviction", asked.Load)
		})
	}
}

// TestPodHasFailedAfterTheTaintAlsoWhereTheAgentHasJustStarted has the agent know neither the Node
// nor, at first, what evictd says of it.
//
// rule: M.86
func TestPodHasFailedAfterTheTaintAlsoWhereTheAgentHasJustStarted(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop, newFault(1<<30, http.MethodGet, "/nodes", func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			return cut(r)
		}
		return nil, nil
	}))
	w.fail(1<<30, http.MethodPatch, "/nodes/"+w.node+"/status", cut)
	pod, intent := w.evicted("")
	w.fail(1<<30, http.MethodPatch, "/pods/"+pod.Name, func(r *http.Request) (*http.Response, error) {
		if strings.Contains(w.bodyOf(r), `"Failed"`) {
			if !tainted(w.seen(), ownTaint) {
				t.Error("the pod has failed before the node has its taint")
			}
		} else {
			w.stand(nodestatus.Backstop, true) // while the phase is due
		}
		return nil, nil
	})
	intent.Ended = time.Now()
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the status", func() bool { return w.pod(pod.Name).Status.Phase == v1.PodFailed })
}

// bodyOf reads the body of a request, which can be read again.
func (w *fixture) bodyOf(r *http.Request) string {
	body, err := r.GetBody()
	if err != nil {
		w.t.Error(err)
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		w.t.Error(err)
	}
	return string(text)
}

// TestPodIsReportedWhereTaintsAreForbidden has a terminal phase wait for no taint.
func TestPodIsReportedWhereTaintsAreForbidden(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	w.fail(1<<30, http.MethodPatch, "/nodes/"+w.node, func(request *http.Request) (*http.Response, error) {
		if strings.HasSuffix(request.URL.Path, "/status") {
			return nil, nil
		}
		return status(http.StatusForbidden, metav1.StatusReasonForbidden)(request)
	})
	w.stand(nodestatus.Backstop, true)
	pod, intent := w.evicted("")
	intent.Ended = time.Now()
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the status", func() bool { return w.pod(pod.Name).Status.Phase == v1.PodFailed })
}

// TestPodIsDeletedOnceItsStatusSaysWhy has the request arrive before the eviction, as it may.
func TestPodIsDeletedOnceItsStatusSaysWhy(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	pod, intent := w.evicted("")
	intent.Requested = true
	w.fail(1<<30, http.MethodDelete, "/pods/"+pod.Name, func(*http.Request) (*http.Response, error) {
		if !isTarget(w.pod(pod.Name), intent.Message) {
			t.Error("the pod is deleted before its status says why")
		}
		return nil, nil
	})
	w.publisher.Handle(wire.ToAgent{EvictionRequest: &wire.EvictionRequest{
		UID: pod.UID, Pod: pod.Namespace + "/" + pod.Name, GraceSeconds: 20, Deadline: wire.Instant{Time: time.Now().Add(wait.Limit)}, Delete: true,
	}})
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the deletion", func() bool { return w.pod(pod.Name).DeletionTimestamp != nil })
	if grace := w.pod(pod.Name).DeletionGracePeriodSeconds; grace == nil || *grace != 20 {
		t.Errorf("grace %v, want 20 s", grace)
	}
}

// TestEvictedIsNoEventBeforeTheEvictionAPIHasGrantedIt has another event follow the eviction: events
// are written in their order.
//
// rule: M.102
func TestEvictedIsNoEventBeforeTheEvictionAPIHasGrantedIt(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Native)
	pod, intent := w.evicted("")
	intent.Requested = true
	var grants atomic.Bool
	refused, refuse := make(chan struct{}), status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	refuseOnce := sync.OnceFunc(func() { close(refused) })
	w.fail(1<<30, http.MethodPost, "/pods/"+pod.Name+"/eviction", func(r *http.Request) (*http.Response, error) {
		if grants.Load() {
			return nil, nil
		}
		refuseOnce()
		return refuse(r)
	})
	w.publisher.Handle(wire.ToAgent{EvictionRequest: &wire.EvictionRequest{
		UID: pod.UID, Pod: pod.Namespace + "/" + pod.Name, Deadline: wire.Instant{Time: time.Now().Add(wait.Limit)},
	}})
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	w.publisher.Handle(wire.ToAgent{Event: &wire.Event{
		Pod: wire.PodName{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}, At: time.Now(), Type: v1.EventTypeNormal, Reason: "Later", Action: "Testing",
	}})
	<-refused
	await(t, "the later event", func() bool { return slices.Contains(w.reasons(pod.UID), "Later") })
	if reasons := w.reasons(pod.UID); len(reasons) != 1 {
		t.Errorf("events %v before the Eviction API has granted the eviction", reasons)
	}
	grants.Store(true)
	await(t, "the event", func() bool { return slices.Contains(w.reasons(pod.UID), "Evicted") })
}

// TestTheEvictionAPIIsAskedWhereThereAreNoEvictionRequests has an API server without lifecycle.k8s.io.
//
// rule: M.165
func TestTheEvictionAPIIsAskedWhereThereAreNoEvictionRequests(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Native)
	pod, intent := w.evicted("")
	intent.Requested = true
	w.publisher.Handle(wire.ToAgent{EvictionRequest: &wire.EvictionRequest{
		UID: pod.UID, Pod: pod.Namespace + "/" + pod.Name, Deadline: wire.Instant{Time: time.Now().Add(wait.Limit)}, Object: true,
	}})
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the pod to be evicted", func() bool {
		now, err := w.api.CoreV1().Pods(pod.Namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil
	})
	await(t, "the event of the node", func() bool {
		events, err := w.api.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool { return e.Reason == "EvictionRequestsUnavailable" })
	})
}

// reasons are those of the events of a pod.
func (w *fixture) reasons(uid types.UID) (reasons []string) {
	w.t.Helper()
	events, err := w.api.EventsV1().Events("default").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, e := range events.Items {
		if e.Regarding.UID == uid {
			reasons = append(reasons, e.Reason)
		}
	}
	return reasons
}

func TestPodWhoseStatusMetAConflictIsStillReported(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	pod, intent := w.evicted("-druid-0") // the answers name the pod, so that "uid" is in them
	w.fail(1, http.MethodPatch, "/pods/"+pod.Name, status(http.StatusConflict, metav1.StatusReasonConflict))
	w.fail(1, http.MethodPatch, "/pods/"+pod.Name, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid))
	intent.Ended = time.Now()
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the status", func() bool { return w.pod(pod.Name).Status.Phase == v1.PodFailed })
}

func TestPodOfTheSameNameThatCameAfterIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t, nodestatus.Backstop)
	pod, intent := w.evicted("")
	intent.UID = "11111111-2222-3333-4444-555555555555"
	w.publisher.Handle(wire.ToAgent{Intent: intent})
	await(t, "the intent to be done with", func() bool { return w.hasReported(intent.ID) })
	if s := w.pod(pod.Name).Status; s.Phase == v1.PodFailed {
		t.Errorf("status %+v", s)
	}
}
