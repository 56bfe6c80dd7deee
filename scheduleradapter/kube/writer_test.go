package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// server is a fake API server that records requests.
type server struct {
	*testing.T
	client kubernetes.Interface
	known  cache.Indexer // pods of the informer

	mu       sync.Mutex
	requests []string
	answer   func(request string) (code int, reason string)
}

func newServer(t *testing.T) *server {
	s := &server{T: t, known: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	s.answer = func(string) (int, string) { return http.StatusOK, "" }
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		request := r.Method + " " + r.URL.Path + " " + string(body)
		s.mu.Lock()
		s.requests = append(s.requests, request)
		code, reason := s.answer(request)
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if reason != "" {
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
		} else {
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
		}
	}))
	t.Cleanup(h.Close)
	var err error
	if s.client, err = kubernetes.NewForConfig(&rest.Config{Host: h.URL, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// got lists the requests; those that match, without content.
func (s *server) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// wait waits for a number of requests.
func (s *server) wait(n int) []string {
	s.Helper()
	wait.Until(s, fmt.Sprint(n, " requests"), func() bool { return len(s.got()) >= n })
	return s.got()
}

// writing runs a writer until the test ends.
func (s *server) writing() *Writer {
	w := NewWriter(s.client, s.known, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	s.Cleanup(func() { stop(); running.Wait() })
	return w
}

func aPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-of-p", Generation: 3}, Spec: v1.PodSpec{SchedulerName: "s"},
	}
}

func unschedulable(message string) cycle.Status {
	return cycle.Status{Reason: v1.PodReasonUnschedulable, Message: message}
}

func TestAStatusIsWrittenOnceAndUnderTheUIDOfItsPod(t *testing.T) {
	s := newServer(t)
	w := s.writing()
	node := "n"
	w.PatchStatus(aPod("p"), cycle.Status{Reason: "Unschedulable", Message: "no room", Nominated: &node})
	request := s.wait(1)[0]
	var patch struct {
		Metadata struct{ UID string }
		Status   v1.PodStatus
	}
	line, body, _ := strings.Cut(request, " {")
	if err := json.Unmarshal([]byte("{"+body), &patch); err != nil || line != "PATCH /api/v1/namespaces/default/pods/p/status" {
		t.Fatalf("%s: %v", request, err)
	}
	c := patch.Status.Conditions
	if patch.Metadata.UID != "uid-of-p" || patch.Status.NominatedNodeName != "n" || len(c) != 1 || c[0].Type != v1.PodScheduled || c[0].Status != v1.ConditionFalse ||
		c[0].Reason != "Unschedulable" || c[0].Message != "no room" || c[0].ObservedGeneration != 3 || c[0].LastTransitionTime.IsZero() {
		t.Errorf("wrote %s", body)
	}
}

func TestWhatTheServerKnowsIsNotWrittenAgain(t *testing.T) {
	current := aPod("p")
	current.Status.NominatedNodeName = "n"
	since := metav1.NewTime(time.Unix(1000, 0))
	current.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable", Message: "no room", ObservedGeneration: 3, LastTransitionTime: since,
	}}
	node, none := "n", ""
	if _, differs := changes(current, cycle.Status{Reason: "Unschedulable", Message: "no room", Nominated: &node}, time.Unix(2000, 0)); differs {
		t.Error("the same is written again")
	}
	status, differs := changes(current, unschedulable("less room"), time.Unix(2000, 0))
	if !differs || len(status.Conditions) != 1 || !status.Conditions[0].LastTransitionTime.Equal(&since) || status.NominatedNodeName != nil {
		t.Errorf("another message: %v %+v", differs, status)
	}
	status, _ = changes(current, cycle.Status{Nominated: &none}, time.Unix(2000, 0))
	if body, err := statusPatch("u", status); err != nil || string(body) != `{"metadata":{"uid":"u"},"status":{"nominatedNodeName":null}}` {
		t.Errorf("taken back: %s %v", body, err)
	}
}

func TestAStatusThatTheServerDoesNotTakeIsTriedAgainAndTheLaterWordCounts(t *testing.T) {
	s := newServer(t)
	failures := 2
	s.answer = func(string) (int, string) {
		if failures--; failures >= 0 {
			return http.StatusInternalServerError, "InternalError"
		}
		return http.StatusOK, ""
	}
	w := s.writing()
	w.PatchStatus(aPod("p"), unschedulable("first"))
	got := s.wait(3)
	if !strings.Contains(got[2], "first") {
		t.Errorf("wrote %q", got)
	}
	w.PatchStatus(aPod("p"), unschedulable("second"))
	if got = s.wait(4); !strings.Contains(got[3], "second") {
		t.Errorf("wrote %q", got)
	}
}

// TestNothingIsWrittenOfPodsThatAreGoneOrHaveANode: also not what the informer's version of a
// pod has.
func TestNothingIsWrittenOfPodsThatAreGoneOrHaveANode(t *testing.T) {
	s := newServer(t)
	s.answer = func(string) (int, string) { return http.StatusNotFound, "NotFound" }
	bound := aPod("bound")
	bound.Spec.NodeName = "n"
	nominated := aPod("nominated")
	nominated.Status.NominatedNodeName = "n"
	transform := keepDigests()
	for _, pod := range []*v1.Pod{bound, nominated} {
		digested, err := transform(pod)
		require.NoError(t, err)
		require.NoError(t, s.known.Add(digested))
	}
	w := s.writing()
	w.PatchStatus(aPod("bound"), unschedulable("no room"))
	w.PatchStatus(aPod("nominated"), cycle.Status{Nominated: new("n")})
	w.PatchStatus(aPod("gone"), unschedulable("no room"))
	s.wait(1)
	late := aPod("late")
	late.UID = "late"
	w.PatchStatus(late, unschedulable("no room"))
	for _, request := range s.wait(2) {
		if strings.Contains(request, "/bound/") || strings.Contains(request, "/nominated/") {
			t.Errorf("wrote %s", request)
		}
	}
}

func TestAVictimIsMarkedAndDeletedUnderItsUID(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(string) (int, string)
		want   []string
		fails  bool
	}{
		{"there", func(string) (int, string) { return http.StatusOK, "" }, []string{"PATCH", "DELETE"}, false},
		{"gone", func(string) (int, string) { return http.StatusNotFound, "NotFound" }, []string{"PATCH"}, false},
		{"another", func(r string) (int, string) {
			if strings.HasPrefix(r, "DELETE") {
				return http.StatusConflict, "Conflict"
			}
			return http.StatusOK, ""
		}, []string{"PATCH", "DELETE"}, false},
		{"another, or changed meanwhile", func(r string) (int, string) {
			if strings.HasPrefix(r, "PATCH") {
				return http.StatusConflict, "Conflict"
			}
			return http.StatusOK, ""
		}, []string{"PATCH", "DELETE"}, false},
		{"forbidden", func(string) (int, string) { return http.StatusForbidden, "Forbidden" }, []string{"PATCH"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			s.answer = c.answer
			err := s.writing().DeleteVictim(t.Context(), aPod("p"), aPod("high"))
			if (err != nil) != c.fails {
				t.Error(err)
			}
			var verbs []string
			for _, request := range s.got() {
				verb, _, _ := strings.Cut(request, " ")
				verbs = append(verbs, verb)
				if !strings.Contains(request, "uid-of-p") {
					t.Errorf("without the uid: %s", request)
				}
			}
			if !slices.Equal(verbs, c.want) {
				t.Errorf("%q, want %q", verbs, c.want)
			}
		})
	}
}

func failure(note string) cycle.Event {
	return cycle.Event{Regarding: aPod("p"), Type: v1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling", Note: note, Controller: "s"}
}

func TestEventsThatRepeatBecomeASeries(t *testing.T) {
	e := newEvents(newServer(t).client.EventsV1(), newTraffic(), slog.New(slog.DiscardHandler))
	start := time.Unix(1000, 0)
	key := series{"p", "FailedScheduling", "Scheduling"}
	for _, c := range []struct {
		after time.Duration
		count int32
		write bool
	}{
		{0, 1, true}, {time.Second, 2, true}, {2 * time.Second, 3, false}, {90 * time.Second, 4, true}, {8 * time.Minute, 1, true},
	} {
		if _, count, write := e.count(key, happening{failure("no room"), start.Add(c.after)}); count != c.count || write != c.write {
			t.Errorf("after %s: number %d, written %v; want %d, %v", c.after, count, write, c.count, c.write)
		}
	}
}

func TestAnEventIsWritten(t *testing.T) {
	s := newServer(t)
	s.writing().RecordEvent(failure("no room"))
	if got := s.wait(1); !strings.HasPrefix(got[0], "POST /apis/events.k8s.io/v1/namespaces/default/events ") || !strings.Contains(got[0], "no room") {
		t.Errorf("wrote %q", got)
	}
}

func TestEventsGiveWayToBindingsButNotForEver(t *testing.T) {
	for name, c := range map[string]struct{ binding, want time.Duration }{
		"no binding": {0, 0}, "as long as a binding": {eventYield / 4, eventYield / 4}, "not for ever": {time.Hour, eventYield},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				binding := newTraffic()
				binding.enter()
				binding.enter()
				binding.leave()
				ended := time.AfterFunc(c.binding, binding.leave)
				defer ended.Stop()
				synctest.Wait()
				start := time.Now()
				newEvents(nil, binding, nil).yield(t.Context())
				if took := time.Since(start); took != c.want {
					t.Errorf("gave way for %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestEventsAreLostBeforeAnyCallBlocks(t *testing.T) {
	w := NewWriter(newServer(t).client, nil, slog.New(slog.DiscardHandler))
	for range eventsKept + 7 {
		w.RecordEvent(failure("no room"))
	}
	if lost := w.events.dropped.Load(); lost != 7 {
		t.Errorf("%d events were lost, want 7", lost)
	}
}

func TestALongNoteIsShortened(t *testing.T) {
	if got := shortened(strings.Repeat("x", 2000)); len(got) != noteLength || !strings.HasSuffix(got, "x ...") {
		t.Errorf("%d bytes, %s", len(got), got[len(got)-10:])
	}
	if got := shortened("short"); got != "short" {
		t.Error(got)
	}
	if got := shortened("x" + strings.Repeat("é", 1000)); len(got) > noteLength || !utf8.ValidString(got) {
		t.Errorf("%d bytes, %q at the end", len(got), got[len(got)-10:])
	}
}

func TestAnEventOfALongNameHasOneThatTheServerTakes(t *testing.T) {
	e := newEvents(nil, nil, nil)
	h := happening{failure("no room"), time.Unix(1000, 0)}
	h.Regarding.Name = strings.Repeat("x", 228) + ".-y"
	name, _, _ := e.count(series{}, h)
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		t.Errorf("%s: %q", name, faults)
	}
}
