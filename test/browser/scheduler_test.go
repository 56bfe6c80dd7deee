package browser_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/harness"
)

// cluster is an embedded API.
type cluster struct {
	*testing.T
	url string
}

func newCluster(t *testing.T) (c *cluster, server string) {
	t.Helper()
	dir, address := harness.Dir(t), freeAddress(t)
	socket := filepath.Join(dir, "api.sock")
	harness.APIServer(t, socket, filepath.Join(dir, "data"), sandbox.Listen(address))
	return &cluster{t, "http://" + address}, "unix:" + socket
}

// make puts an object in by its collection's path.
func (c *cluster) make(path string, object any) {
	c.Helper()
	text, err := json.Marshal(object)
	require.NoError(c, err)
	answer, err := http.Post(c.url+path, "application/json", bytes.NewReader(text))
	require.NoError(c, err)
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusCreated {
		c.Fatalf("POST %s: %s: %s", path, answer.Status, body)
	}
}

// remove deletes an object by its path.
func (c *cluster) remove(path string) {
	c.Helper()
	request, err := http.NewRequestWithContext(c.Context(), http.MethodDelete, c.url+path, nil)
	require.NoError(c, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(c, err)
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		c.Fatalf("DELETE %s: %s: %s", path, answer.Status, body)
	}
}

// node makes one, and the Lease that its evictd would keep.
func (c *cluster) node(name, level string, conditions ...v1.NodeConditionType) {
	c.Helper()
	n := v1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("16Gi"), v1.ResourcePods: resource.MustParse("110")}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	for _, condition := range conditions {
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: condition, Status: v1.ConditionTrue})
	}
	c.make("/api/v1/nodes", n)
	now := metav1.NowMicro()
	c.make("/apis/coordination.k8s.io/v1/namespaces/evictd-system/leases", coordination.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: "evictd-" + name, Namespace: "evictd-system", Annotations: map[string]string{
			"evictd.io/pressure": fmt.Sprintf(`{"v":1,"signals":{"memory.available":{"level":%q},"nodefs.available":{"level":"ok"}},"evicted":[]}`, level),
		}},
		Spec: coordination.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(3600)), RenewTime: &now},
	})
}

func (c *cluster) pod(name, cpu string) {
	c.Helper()
	c.make("/api/v1/namespaces/default/pods", v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("512Mi")},
		}}}},
	})
}

// TestThePageOfTheScheduler has a pod that fits nowhere, and nodes under pressure.
func TestThePageOfTheScheduler(t *testing.T) {
	browser := openBrowser(t)
	c, server := newCluster(t)
	c.make("/api/v1/namespaces", v1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "evictd-system"}})
	for i := range 9 {
		c.node(fmt.Sprintf("node-%d", i), "ok")
	}
	c.node("node-tight", "tight")
	c.node("node-pressed", "hard", v1.NodeMemoryPressure)
	address := freeAddress(t)
	socket := filepath.Join(harness.Dir(t), "status.sock")
	harness.Scheduler(t, socket, sandbox.Server(server), sandbox.StatusAddress("unix:"+socket+","+address),
		sandbox.Config(filepath.Join("..", "..", "docs", "examples", "evictd-scheduler.yaml")))
	for i := range 12 {
		c.pod(fmt.Sprintf("web-%d", i), "500m")
	}
	c.pod("giant", "64")

	p := openTab(t, browser, address)
	p.scheme("light")
	p.see("the pod that waits, and why", `/default.giant.*unschedulable.*Insufficient cpu/.test(document.querySelector("#pending")?.textContent)`)
	p.see("the node under pressure first", `/^node-pressed.*MemoryPressure/.test(document.querySelector("#nodes .cell.ink-bad")?.textContent)`)
	p.see("the node that is near", `document.querySelector("#nodes .cell.ink-tight")?.textContent.startsWith("node-tight")`)
	p.see("the queues over time", `document.querySelector("#depth .curve")?.getAttribute("d").length > 10`)
	p.see("attempts and how long they took", `/12 scheduled/.test(document.querySelector("#tiles").textContent) && /99 of 100 within \d/.test(document.querySelector("#tiles").textContent)`)
	p.shoot("light")
	c.node("node-late", "soft", v1.NodeDiskPressure)
	p.see("a node that is added", `document.querySelectorAll("#nodes .cell").length === 12 && document.querySelector("#nodes .cell.ink-warn")?.textContent.startsWith("node-late")`)
	c.remove("/api/v1/nodes/node-late")
	p.see("that it is removed", `document.querySelectorAll("#nodes .cell").length === 11 && !document.querySelector("#nodes .cell.ink-warn")`)
	p.click("#pending .link")
	p.see("why the pod fits nowhere", `/fits 0 of 11 nodes.*Insufficient cpu.*cpu: 5\d.* more than/.test(document.querySelector("dialog")?.textContent)`)
	p.shoot("explanation")
	p.click("dialog .icon")
	p.click("#nodes .cell")
	p.see("what its evictd says", `/memory.available.*hard/.test(document.querySelector("dialog")?.textContent)`)
	p.shoot("node")
	p.click("dialog .icon")
	p.scheme("dark")
	p.see("the dark scheme", `getComputedStyle(document.body).backgroundColor === "rgb(11, 12, 15)"`)
	p.shoot("dark")
	p.narrow()
	p.shoot("phone")
}
