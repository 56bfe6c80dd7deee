package scheduleradapter

import (
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// rule: S1.105
func TestPodsWithClaimsAreRefusedWhereTheAPIServerHasNoClaims(t *testing.T) {
	c := newLiveCluster(t)
	older := func(w http.ResponseWriter, r *http.Request) (refused bool) {
		if refused = strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io"); refused {
			http.NotFound(w, r)
		}
		return refused
	}
	c.refuse.Store(&older)
	c.node("a")
	s := c.runs("--leader-elect=false")
	c.pod("p", func(p *v1.Pod) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "device", ResourceClaimName: new("c")}}
	})
	const why = "0/1 nodes are available: the API server does not serve resource.k8s.io/v1, which the pod's resource claims need."
	c.awaitEvent("p", "FailedScheduling", why)
	c.until("the condition has the reason", func() bool { return strings.HasPrefix(condition(c.get("p"), v1.PodScheduled).Message, why) })
	c.pod("q")
	c.bound("q")
	if _, errs := s.stop(); strings.Count(errs, "pods with resource claims are not scheduled") != 1 {
		t.Errorf("the scheduler said\n%s", errs)
	}
}
