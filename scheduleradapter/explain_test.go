package scheduleradapter

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/scheduleradapter/cycle"
)

func TestExplainShowsWhereAPodFitsAndWhatWouldHaveToChange(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	c.node("b")
	tainted := must(c.CoreV1().Nodes().Get(c.Context(), "b", metav1.GetOptions{}))(c)
	tainted.Spec.Taints = []v1.Taint{{Key: "disk", Value: "slow", Effect: v1.TaintEffectNoSchedule}}
	must(c.CoreV1().Nodes().Update(c.Context(), tainted, metav1.UpdateOptions{}))(c)
	socket := c.runs("--leader-elect=false").socket
	c.pod("small")
	c.bound("small")
	c.pod("big", func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1500m")
	})
	c.awaitEvent("big", "FailedScheduling", "Insufficient cpu")

	explain := func(args ...string) string {
		t.Helper()
		code, out, errs := execute(context.Background(), append([]string{"explain", "--status-address", "unix:" + socket}, args...)...)
		if code != 0 || errs != "" {
			t.Fatalf("exit %d: %s", code, errs)
		}
		return out
	}
	c.until("the pod's reasons are known", func() bool { return strings.Contains(explain(), "Insufficient cpu") })
	for what, is := range map[string][]string{
		explain():        {"default/big", "unschedulable", "Insufficient cpu"},
		explain("big"):   {"default/big fits 0 of 2 nodes", "after 1 attempt: ", "taint disk=slow:NoSchedule is not tolerated", "cannot help", "cpu: 500m more than the free 1"},
		explain("small"): {"default/small fits 1 of 2 nodes", "it is on a", "BEST NODES", "NodeResourcesFit"},
	} {
		for _, part := range is {
			if !strings.Contains(what, part) {
				t.Errorf("%q is not in\n%s", part, what)
			}
		}
	}
	var x cycle.Explanation
	if err := json.Unmarshal([]byte(explain("-o", "json", "default/big")), &x); err != nil || x.Nodes != 2 || len(x.Refused) != 2 || x.Nearest[1].Short[0].Lacks != "500m" {
		t.Errorf("%+v, %v", x, err)
	}
	if before, after := explain("-o", "json", "big"), explain("-o", "json", "big"); before != after {
		t.Errorf("asking changed the answer:\n%s%s", before, after)
	}
	if out := explain("--nodes", "big"); !strings.Contains(out, "\nNodeResourcesFit, Insufficient cpu: a\n") {
		t.Errorf("node a is not named in\n%s", out)
	}
	code, _, errs := execute(context.Background(), "explain", "absent", "--status-address", "unix:"+socket)
	if code != 1 || !strings.Contains(errs, "no pod absent of this scheduler's profiles") {
		t.Errorf("exit %d: %s", code, errs)
	}
	_, names, _ := execute(context.Background(), "__complete", "explain", "--status-address", "unix:"+socket, "")
	if !strings.HasPrefix(names, "default/big\t") {
		t.Errorf("completed to %s", names)
	}
}
