package kube_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

// TestRefusedWritesOfAnAgentAreFew has a server refuse every write of an agent that reports pressure, an eviction and its own
// presence, and counts the requests about each object.
//
// rule: M.200
func TestRefusedWritesOfAnAgentAreFew(t *testing.T) {
	t.Parallel()
	const watched, most = 3 * time.Second, 40
	for name, c := range map[string]struct {
		mode   nodestatus.Mode
		answer func(*http.Request) (*http.Response, error)
	}{
		"forbidden":  {nodestatus.Native, status(http.StatusForbidden, metav1.StatusReasonForbidden)},
		"not found":  {nodestatus.Native, status(http.StatusNotFound, metav1.StatusReasonNotFound)},
		"a conflict": {nodestatus.Backstop, status(http.StatusConflict, metav1.StatusReasonConflict)},
		"exists":     {nodestatus.Native, status(http.StatusConflict, metav1.StatusReasonAlreadyExists)},
		"invalid":    {nodestatus.Backstop, status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)},
		"overloaded": {nodestatus.Native, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)},
		"a fault":    {nodestatus.Backstop, status(http.StatusInternalServerError, metav1.StatusReasonInternalError)},
		"away":       {nodestatus.Backstop, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)},
		"cut off":    {nodestatus.Backstop, cut},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, c.mode)
			var mu sync.Mutex
			counts := map[string]int{}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				w.fail(1<<40, method, "", func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					counts[r.Method+" "+r.URL.Path]++
					mu.Unlock()
					return c.answer(r)
				})
			}
			_, intent := w.evicted("")
			intent.Ended = time.Now()
			w.publisher.Handle(wire.ToAgent{Intent: intent})
			w.publisher.Handle(wire.ToAgent{Headroom: &wire.Headroom{Annotation: "{}"}})
			for end := time.Now().Add(watched); time.Now().Before(end); <-time.After(watched / 10) {
				w.stand(c.mode, true)
			}
			mu.Lock()
			defer mu.Unlock()
			for kind, n := range counts {
				if n > most {
					t.Errorf("%s: %d requests in %v, expected %d at most", kind, n, watched, most)
				}
			}
			if len(counts) == 0 {
				t.Error("the agent has written nothing")
			}
			t.Log(counts)
		})
	}
}
