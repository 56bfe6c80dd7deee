package kube

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// TestABindingIsRepeatedWhereTheServerIsInTrouble has the answers of a server to one Binding after the other.
//
// rule: S8.52
func TestABindingIsRepeatedWhereTheServerIsInTrouble(t *testing.T) {
	const away, internal, forbidden, conflict = http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusForbidden, http.StatusConflict
	for name, c := range map[string]struct {
		answers  []int
		node     string // that the pod has, by the message of a conflict
		requests int
		ok       bool
	}{
		"taken":                         {[]int{200}, "", 1, true},
		"away":                          {[]int{away, away, 200}, "", 3, true},
		"internal error":                {[]int{internal, 200}, "", 2, true},
		"away for long":                 {[]int{away, away, away, away, 200}, "", 4, false},
		"refused":                       {[]int{forbidden}, "", 1, false},
		"bound elsewhere":               {[]int{conflict}, "n2", 1, false},
		"bound here by another client":  {[]int{conflict}, "n1", 1, false},
		"taken without an answer":       {[]int{internal, conflict}, "n1", 2, true},
		"bound elsewhere in the middle": {[]int{away, conflict}, "n2", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests := 0
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				code := c.answers[requests]
				requests++
				reasons := map[int]metav1.StatusReason{
					away: metav1.StatusReasonServiceUnavailable, internal: metav1.StatusReasonInternalError,
					forbidden: metav1.StatusReasonForbidden, conflict: metav1.StatusReasonConflict,
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				message := fmt.Sprintf("Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node %q", c.node)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":%q}`, reasons[code], code, message)
			}))
			defer h.Close()
			client, err := kubernetes.NewForConfig(&rest.Config{Host: h.URL, QPS: -1})
			require.NoError(t, err)
			w := NewWriter(client, cache.NewStore(cache.MetaNamespaceKeyFunc), slog.New(slog.DiscardHandler))
			pod := nodetable.NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}})
			err = w.Bind(t.Context(), pod, &nodetable.Node{Name: nodetable.Intern("n1")})
			if (err == nil) != c.ok || requests != c.requests {
				t.Errorf("%d requests, %v; expected %d, success %v", requests, err, c.requests, c.ok)
			}
		})
	}
}
