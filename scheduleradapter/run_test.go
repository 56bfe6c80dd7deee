package scheduleradapter

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/localapi"
)

// embedded is an embedded API with a scheduler on it.
type embedded struct {
	*testing.T
	kubernetes.Interface
	url string
}

// startAPI serves an embedded API.
func startAPI(t *testing.T) *embedded {
	t.Helper()
	api, err := localapi.New(localapi.Config{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- api.Run(ctx) }()
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.CloseClientConnections()
		server.Close()
		if err := api.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return &embedded{t, client, server.URL}
}

// schedule runs a scheduler on the API until the test ends.
func (e *embedded) schedule(flags ...string) {
	e.Helper()
	ctx, stop := context.WithCancel(context.Background())
	type end struct {
		code int
		errs string
	}
	ended := make(chan end, 1)
	go func() {
		code, _, errs := execute(ctx, append([]string{"run", "--server", e.url, "--status-address", "none", "--leader-elect=false"}, flags...)...)
		ended <- end{code, errs}
	}()
	e.Cleanup(func() {
		stop()
		if last := <-ended; last.code != 0 {
			e.Errorf("exit %d: %s", last.code, last.errs)
		} else if e.Failed() {
			e.Log(last.errs)
		}
	})
}

// until waits for something to come true.
func (e *embedded) until(what string, is func() bool) {
	e.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			e.Fatalf("not within a minute: %s", what)
		}
	}
}

func (e *embedded) addNode(name string, conditions ...v1.NodeCondition) {
	e.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	made, err := e.CoreV1().Nodes().Create(e.Context(), node, metav1.CreateOptions{})
	if err == nil {
		for i := range conditions {
			conditions[i].LastHeartbeatTime = metav1.Now()
		}
		made.Status.Conditions = append(conditions, v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, LastHeartbeatTime: metav1.Now()})
		_, err = e.CoreV1().Nodes().UpdateStatus(e.Context(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		e.Fatal(err)
	}
}

func (e *embedded) addPod(name, node string) *v1.Pod {
	e.Helper()
	made, err := e.CoreV1().Pods("default").Create(e.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return made
}

func (e *embedded) pod(name string) *v1.Pod {
	e.Helper()
	pod, err := e.CoreV1().Pods("default").Get(e.Context(), name, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return pod
}

func (e *embedded) hasTaint(node, key string) bool {
	e.Helper()
	object, err := e.CoreV1().Nodes().Get(e.Context(), node, metav1.GetOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return slices.ContainsFunc(object.Spec.Taints, func(t v1.Taint) bool { return t.Key == key })
}

func TestTheControllersActOnAnAPI(t *testing.T) {
	e := startAPI(t)
	e.addNode("a", v1.NodeCondition{Type: v1.NodePIDPressure, Status: v1.ConditionFalse})
	e.addNode("b")
	e.addPod("p", "a")
	e.addPod("q", "b")
	e.schedule("--controllers", "taint-eviction,node-lifecycle")

	patch := []byte(`{"status":{"conditions":[{"type":"PIDPressure","status":"True"}]}}`)
	if _, err := e.CoreV1().Nodes().Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	e.until("the condition is a taint", func() bool { return e.hasTaint("a", v1.TaintNodePIDPressure) })
	patch = []byte(`{"status":{"conditions":[{"type":"PIDPressure","status":"False"}]}}`)
	if _, err := e.CoreV1().Nodes().Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	e.until("the taint is gone", func() bool { return !e.hasTaint("a", v1.TaintNodePIDPressure) })

	patch = []byte(`{"spec":{"taints":[{"key":"mine","effect":"NoExecute"}]}}`)
	if _, err := e.CoreV1().Nodes().Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.until("the pod has to leave", func() bool { return e.pod("p").DeletionTimestamp != nil })
	if !slices.ContainsFunc(e.pod("p").Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == "DeletionByTaintManager"
	}) {
		t.Errorf("conditions %+v", e.pod("p").Status.Conditions)
	}
	if e.pod("q").DeletionTimestamp != nil {
		t.Error("a pod on another node had to leave")
	}
	e.until("the event is written", func() bool {
		events, err := e.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
			return event.Reason == "TaintManagerEviction" && event.Note == "Marking for deletion Pod default/p" && event.Regarding.Name == "p"
		})
	})
}

func TestAnotherSchedulerAsksAboutPressure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	e := startAPI(t)
	e.addNode("a", v1.NodeCondition{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue})
	e.addNode("b")
	e.schedule("--extender-address", address)
	var result wire.ExtenderFilterResult
	e.until("node a is refused", func() bool {
		result = wire.ExtenderFilterResult{}
		response, err := http.Post("http://"+address+"/filter", "application/json", strings.NewReader(
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
