package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// limited makes a pod of the node whose container has a memory limit of 100 MiB.
func (w *fixture) limited(name string) *v1.Pod {
	w.t.Helper()
	limits := v1.ResourceList{v1.ResourceMemory: resource.MustParse("100Mi")}
	pod, err := w.api.CoreV1().Pods("default").Create(w.t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: w.node + "-" + name},
		Spec:       v1.PodSpec{NodeName: w.node, Containers: []v1.Container{{Name: "c", Image: "i", Resources: v1.ResourceRequirements{Limits: limits}}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return pod
}

func resizeOf(pod *v1.Pod, from int64) wire.ToAgent {
	return wire.ToAgent{Resize: &wire.Resize{PodName: wire.PodName{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}, Container: "c", From: from, To: 150 << 20, Requests: true, Note: "Raised."}}
}

// eventsOf are the reasons and notes of the events about a pod.
func (w *fixture) eventsOf(pod *v1.Pod) (all []string) {
	w.t.Helper()
	events, err := w.api.EventsV1().Events("default").List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	for i := range events.Items {
		if e := &events.Items[i]; e.Regarding.UID == pod.UID {
			all = append(all, e.Reason+" "+e.Note)
		}
	}
	return all
}

// rule: M.156
func TestAResizeRaisesTheLimitOfTheContainerAndItsRequest(t *testing.T) {
	w := newFixture(t, nodestatus.Native)
	pod := w.limited("pod")
	var sent atomic.Pointer[string]
	w.fail(1, http.MethodPatch, "/resize", func(r *http.Request) (*http.Response, error) {
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		body := string(text)
		sent.Store(&body)
		answer, err := json.Marshal(pod)
		require.NoError(t, err)
		return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(answer)))}, nil
	})
	w.publisher.Handle(resizeOf(pod, 100<<20))
	await(t, "the event of the resize", func() bool { return strings.Join(w.eventsOf(pod), "") == "ContainerResized Raised." })
	var patch v1.Pod
	require.NoError(t, json.Unmarshal([]byte(*sent.Load()), &patch))
	if r := patch.Spec.Containers[0].Resources; patch.UID != pod.UID || patch.ResourceVersion == "" || r.Limits.Memory().String() != "150Mi" || r.Requests.Memory().String() != "150Mi" {
		t.Errorf("patch %s", *sent.Load())
	}
}

// TestAResizeIsRepeatedWhereThePodHasChangedMeanwhile has another program write the pod between the two requests.
//
// rule: M.156
func TestAResizeIsRepeatedWhereThePodHasChangedMeanwhile(t *testing.T) {
	w := newFixture(t, nodestatus.Native)
	room := v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi"), v1.ResourceCPU: resource.MustParse("1")}}
	_, err := w.api.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}, Status: room}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := w.limited("pod")
	w.fail(1, http.MethodPatch, "/resize", status(http.StatusConflict, metav1.StatusReasonConflict))
	w.publisher.Handle(resizeOf(pod, 100<<20))
	await(t, "an event of the resize", func() bool { return len(w.eventsOf(pod)) > 0 })
	if all := w.eventsOf(pod); len(all) != 1 || all[0] != "ContainerResized Raised." {
		t.Errorf("events %q", all)
	}
	now, err := w.api.CoreV1().Pods("default").Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)
	if limit := now.Spec.Containers[0].Resources.Limits.Memory().String(); limit != "150Mi" {
		t.Errorf("the limit is %s", limit)
	}
}

// TestAPodThatIsDeletedMeanwhileHasNoFailedResize deletes the pod between the two requests.
//
// rule: M.156
func TestAPodThatIsDeletedMeanwhileHasNoFailedResize(t *testing.T) {
	w := newFixture(t, nodestatus.Native)
	pod, last := w.limited("pod"), w.limited("last")
	w.fail(1, http.MethodPatch, "/resize", func(r *http.Request) (*http.Response, error) {
		require.NoError(t, w.api.CoreV1().Pods("default").Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		return status(http.StatusNotFound, metav1.StatusReasonNotFound)(r)
	})
	w.publisher.Handle(resizeOf(pod, 100<<20))
	w.publisher.Handle(resizeOf(last, 90<<20))
	await(t, "the event of the last", func() bool { return len(w.eventsOf(last)) == 1 })
	if all := w.eventsOf(pod); len(all) != 0 {
		t.Errorf("events %q", all)
	}
}

// TestAResizeThatIsRefusedHasOneEventForEachReason has a limit be another than evictd knows, and an API server
// have no pods/resize.
//
// rule: M.156
func TestAResizeThatIsRefusedHasOneEventForEachReason(t *testing.T) {
	for name, test := range map[string]struct {
		from   int64
		answer func(*http.Request) (*http.Response, error)
		why    string
	}{
		"changed since":  {90 << 20, nil, "its limit has changed since"},
		"not found":      {100 << 20, status(http.StatusNotFound, metav1.StatusReasonNotFound), "the API server has no pods/resize"},
		"not allowed":    {100 << 20, status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed), "the API server has no pods/resize"},
		"no such rights": {100 << 20, status(http.StatusForbidden, metav1.StatusReasonForbidden), "made up for"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, nodestatus.Native)
			pod, last := w.limited("pod"), w.limited("last")
			if test.answer != nil {
				w.fail(3, http.MethodPatch, "/resize", test.answer)
			}
			w.publisher.Handle(resizeOf(pod, test.from))
			w.publisher.Handle(resizeOf(pod, test.from))
			w.publisher.Handle(resizeOf(last, test.from))
			await(t, "the event of the last", func() bool { return len(w.eventsOf(last)) == 1 })
			if all := w.eventsOf(pod); len(all) != 1 || !strings.HasPrefix(all[0], "ContainerResizeFailed Raised. That failed: ") || !strings.Contains(all[0], test.why) {
				t.Errorf("events %q, want one with %q", all, test.why)
			}
		})
	}
}
