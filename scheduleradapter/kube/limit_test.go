package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// simulated is a server in simulated time that refuses requests beyond a number at once.
type simulated struct {
	admits           int32
	running, refused atomic.Int32
}

func (s *simulated) answer(context.Context) error {
	defer s.running.Add(-1)
	if s.running.Add(1) > s.admits {
		s.refused.Add(1)
		time.Sleep(time.Millisecond)
		return apierrors.NewTooManyRequests("too many requests", 1)
	}
	time.Sleep(10 * time.Millisecond)
	return nil
}

// sleep is a request that is answered after a time.
func sleep(d time.Duration) func(context.Context) error {
	return func(context.Context) error { time.Sleep(d); return nil }
}

// together makes requests of which all may be under way, and repeats those that fail.
func (l *limit) together(t *testing.T, n int, request func(context.Context) error) {
	var running sync.WaitGroup
	for range n {
		running.Go(func() {
			for l.do(t.Context(), request) != nil {
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	running.Wait()
	if l.running != 0 || len(l.waiting) != 0 {
		t.Errorf("%d requests run and %d wait after the last answer", l.running, len(l.waiting))
	}
}

func TestServerThatRefusesReceivesFewerBindingsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := newLimit(), simulated{admits: 40}
		begin := time.Now()
		l.together(t, 20_000, s.answer)
		if refused := s.refused.Load(); refused > 400 {
			t.Errorf("%d of 20,000 bindings are refused", refused)
		}
		if l.places < leastLimit || l.places > 41 {
			t.Errorf("the limit is %.1f, expected at most 41", l.places)
		}
		if took := time.Since(begin); took > 2*20_000/40*10*time.Millisecond {
			t.Errorf("20,000 bindings took %s, expected at most twice what the server can", took)
		}
	})
}

func TestLimitFollowsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit()
		l.together(t, 5_000, sleep(fastAnswer))
		if l.places != firstLimit {
			t.Errorf("the limit is %.1f after answers that are not fast, expected %d", l.places, firstLimit)
		}
		l.together(t, 5_000, sleep(2*time.Millisecond))
		high := l.places
		if high <= firstLimit {
			t.Errorf("the limit is %.1f after fast answers, expected more than %d", high, firstLimit)
		}
		l.together(t, 100, sleep(3*time.Second))
		if l.places != high/2 {
			t.Errorf("the limit is %.1f after requests that were late together, expected %.1f", l.places, high/2)
		}
		l.together(t, 20_000, sleep(3*time.Second))
		if l.places < firstLimit {
			t.Errorf("the limit is %.1f for a server that is always slow, expected at least %d", l.places, firstLimit)
		}
	})
}

func TestLimitIsHalvedByAnswersAboutTheServerOnly(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, c := range []struct {
		err    error
		halves bool
	}{
		{nil, false},
		{apierrors.NewNotFound(pods, "p"), false},
		{apierrors.NewConflict(pods, "p", errors.New("bound")), false},
		{apierrors.NewTooManyRequests("full", 1), true},
		{apierrors.NewServiceUnavailable("away"), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{errors.New("connection refused"), true},
	} {
		l := newLimit()
		err := l.do(t.Context(), func(context.Context) error { return c.err })
		if want := map[bool]float64{true: firstLimit / 2, false: firstLimit}[c.halves]; !errors.Is(err, c.err) || l.places != want {
			t.Errorf("%v: the limit is %.1f, expected %.1f", c.err, l.places, want)
		}
	}
}

func TestBindingThatIsCancelledLeavesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimit()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range 3 * firstLimit {
			running.Go(func() {
				ctx := ctx
				if i%2 == 0 {
					ctx = t.Context()
				}
				_ = l.do(ctx, func(ctx context.Context) error {
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Millisecond):
					}
					return ctx.Err()
				})
			})
		}
		time.Sleep(5 * time.Millisecond)
		cancel()
		running.Wait()
		if l.running != 0 || len(l.waiting) != 0 || l.places < firstLimit {
			t.Errorf("%d requests run and %d wait at the end, the limit is %.1f", l.running, len(l.waiting), l.places)
		}
	})
}

func TestRefusalThatTheClientRetriesHalvesTheLimit(t *testing.T) {
	var requests atomic.Int32
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if requests.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	}))
	defer h.Close()
	config := &rest.Config{Host: h.URL, QPS: -1}
	SeeRefusals(config)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	w := NewWriter(client, nil, slog.New(slog.DiscardHandler))
	err = w.Bind(t.Context(), nodetable.NewPod(aPod("p")), nodetable.NewNode(&v1.Node{}))
	if err != nil || requests.Load() != 2 || w.binds.places != firstLimit/2 {
		t.Errorf("%v after %d requests, the limit is %.1f, expected %d", err, requests.Load(), w.binds.places, firstLimit/2)
	}
}
