package scheduleradapter

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/process"
)

func (c *liveCluster) addNode(name string, conditions ...v1.NodeCondition) {
	c.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made, err := c.CoreV1().Nodes().Create(c.Context(), node, metav1.CreateOptions{})
	if err == nil {
		for i := range conditions {
			conditions[i].LastHeartbeatTime = metav1.Now()
		}
		made.Status.Conditions = append(conditions, v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()})
		_, err = c.CoreV1().Nodes().UpdateStatus(c.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *liveCluster) addPod(name, node string) *v1.Pod {
	c.Helper()
	made, err := c.CoreV1().Pods("default").Create(c.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return made
}

func (c *liveCluster) hasTaint(node, key string) bool {
	c.Helper()
	object, err := c.CoreV1().Nodes().Get(c.Context(), node, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return slices.ContainsFunc(object.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

func TestTheControllersActOnAnAPI(t *testing.T) {
	c := newLiveCluster(t)
	c.addNode("a", v1.NodeCondition{Type: v1.NodePIDPressure, Status: v1.ConditionFalse})
	c.addNode("b")
	c.addPod("p", "a")
	c.addPod("q", "b")
	c.runs("--leader-elect=false", "--controllers", "taint-eviction,node-lifecycle")

	patch := []byte(`{"status":{"conditions":[{"type":"PIDPressure","status":"True"}]}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.until("the condition is a taint", func() bool { return c.hasTaint("a", v1.TaintNodePIDPressure) })
	patch = []byte(`{"status":{"conditions":[{"type":"PIDPressure","status":"False"}]}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	c.until("the taint is gone", func() bool { return !c.hasTaint("a", v1.TaintNodePIDPressure) })

	patch = []byte(`{"spec":{"taints":[{"key":"mine","effect":"NoExecute"}]}}`)
	if _, err := c.CoreV1().Nodes().Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until("the pod has to leave", func() bool { return c.get("p").DeletionTimestamp != nil })
	if !slices.ContainsFunc(c.get("p").Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "DeletionByTaintManager"
	}) {
		t.Errorf("conditions %+v", c.get("p").Status.Conditions)
	}
	if c.get("q").DeletionTimestamp != nil {
		t.Error("a pod on another node had to leave")
	}
	c.until("the event is written", func() bool {
		events, err := c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "TaintManagerEviction" && event.Note == "Marking for deletion Pod default/p" && event.Regarding.Name == "p"
		})
	})
}

func TestAnotherSchedulerAsksAboutPressure(t *testing.T) {
	c := newLiveCluster(t)
	c.addNode("a", v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
	c.addNode("b")
	socket := filepath.Join(t.TempDir(), "extender.sock")
	client := process.Client(socket)
	defer client.CloseIdleConnections()
	c.runs("--leader-elect=false", "--extender-address", "unix:"+socket)
	var result wire.ExtenderFilterResult
	c.until("node a is refused", func() bool {
		result = wire.ExtenderFilterResult{}
		response, err := client.Post("http://localhost/filter", "application/json", strings.NewReader(
			`{"Pod":{"metadata":{"namespace":"default","name":"p"}},"NodeNames":["a","b","unknown"]}`))
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(&result) == nil && len(result.FailedAndUnresolvableNodes) > 0
	})
	if fmt.Sprint(*result.NodeNames, result.FailedAndUnresolvableNodes) != "[b unknown] map[a:node(s) were short of disk space or inodes]" {
		t.Errorf("result %v, %v", *result.NodeNames, result.FailedAndUnresolvableNodes)
	}
}

func TestUnknownControllersAreRefused(t *testing.T) {
	code, _, errs := execute(t.Context(), "run", "--server", "http://127.0.0.1:1", "--controllers", "taint-eviction,garbage")
	if want := `no controller "garbage"; expected taint-eviction and node-lifecycle`; code != 2 || !strings.Contains(errs, want) {
		t.Errorf("exit %d, %s; expected %s", code, errs, want)
	}
}

// rule: S8.24
func TestAnExtenderThatOthersReachNeedsCertificates(t *testing.T) {
	code, _, errs := execute(t.Context(), "run", "--server", "http://127.0.0.1:1", "--status-address", "none", "--extender-address", "0.0.0.0:0")
	if want := `--extender-address "0.0.0.0:0": others than this host can reach it`; code != 2 || !strings.Contains(errs, want) {
		t.Errorf("exit %d, %s; expected %s", code, errs, want)
	}
}
