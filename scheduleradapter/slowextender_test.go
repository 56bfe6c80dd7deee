package scheduleradapter

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/process"
)

// slowExtender holds the requests for pods whose names begin with "held" until the test responds. Of all others
// it accepts each node.
type slowExtender struct {
	t        *testing.T
	asked    chan []string // the nodes of held requests
	canceled chan string   // the verbs of held requests that the scheduler has ended

	mu       sync.Mutex
	response *response
}

type response struct {
	ready chan struct{} // closed when text is valid
	text  string
}

func newSlowExtender(t *testing.T) *slowExtender {
	e := &slowExtender{t: t, asked: make(chan []string, 100), canceled: make(chan string, 100)}
	e.hold()
	return e
}

// hold holds all requests from now on.
func (e *slowExtender) hold() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.response = &response{ready: make(chan struct{})}
}

// respond responds to the held requests, and to those that follow.
func (e *slowExtender) respond(text string) {
	e.response.text = text
	close(e.response.ready)
}

func (e *slowExtender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var args struct { // ExtenderArgs or ExtenderPreemptionArgs
		Pod                   struct{ Metadata metav1.ObjectMeta }
		NodeNames             []string
		NodeNameToMetaVictims map[string]*wire.MetaVictims
	}
	if err := json.NewDecoder(r.Body).Decode(&args); err != nil {
		e.t.Error(err)
	}
	answer := map[string]any{"NodeNames": args.NodeNames, "NodeNameToMetaVictims": args.NodeNameToMetaVictims}
	if !strings.HasPrefix(args.Pod.Metadata.Name, "held") {
		json.NewEncoder(w).Encode(answer)
		return
	}
	e.mu.Lock()
	response := e.response
	e.mu.Unlock()
	e.asked <- args.NodeNames
	select {
	case <-response.ready:
		fmt.Fprint(w, response.text)
	case <-r.Context().Done():
		e.canceled <- strings.TrimPrefix(r.URL.Path, "/")
	}
}

// file of a configuration with the extender; more are further fields.
func (e *slowExtender) file(verbs, more string) string {
	server := httptest.NewServer(e)
	e.t.Cleanup(server.Close)
	file := filepath.Join(e.t.TempDir(), "config.yaml")
	text := fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders: [{urlPrefix: %q, %s, httpTimeout: 1h, nodeCacheCapable: true}]\n%s", server.URL, verbs, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	return file
}

// read returns the status and the body of a page of the status address.
func (s *scheduler) read(path string) string {
	client := process.Client(s.socket)
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://scheduler" + path)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(answer.StatusCode, " ", string(body))
}

// rule: S8.44
func TestEventsAreHandledWhileAnExtenderAnswers(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	for _, name := range []string{"a", "b"} {
		c.node(name)
	}
	s := c.runs("--leader-elect=false", "--config", e.file("filterVerb: filter", ""))
	c.pod("held")
	if asked := <-e.asked; len(asked) != 2 {
		t.Errorf("the extender is asked about %v", asked)
	}
	c.pod("next")
	c.node("c")
	if err := c.CoreV1().Nodes().Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until("the events are handled", func() bool {
		page := s.read("/v1/explain")
		return strings.Contains(page, `"pod":"default/next","place":"active"`) && strings.Contains(page, `"pod":"default/held","place":"inflight"`) &&
			strings.Contains(s.read("/metrics"), `scheduler_cache_size{type="nodes"} 2`+"\n")
	})
	if got := s.read("/livez"); got != "200 ok\n" {
		t.Errorf("/livez: %s", got)
	}
	e.respond(`{"NodeNames": ["b"]}`)
	c.bound("held")
	c.bound("next")
	if node := c.get("held").Spec.NodeName; node != "b" {
		t.Errorf("held is on node %s, which the extender did not name", node)
	}
}

// TestTheRequestOfADeletedPodIsCanceled: the next pod does not wait for the response.
// rule: S8.45
func TestTheRequestOfADeletedPodIsCanceled(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	c.node("a")
	c.node("b")
	c.runs("--leader-elect=false", "--config", e.file("prioritizeVerb: prioritize, weight: 1", ""))
	c.pod("held")
	<-e.asked
	c.pod("next")
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "held", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	if verb := <-e.canceled; verb != "prioritize" {
		t.Errorf("canceled: %s", verb)
	}
	c.bound("next")
}

// rule: S8.45
func TestTheRequestsOfALostLeaseAreCanceled(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	c.node("a")
	election := strings.Split(string(must(os.ReadFile(c.election(500*time.Millisecond)))(c)), "\n")
	s := c.runs("--config", e.file("filterVerb: filter", strings.Join(election[2:], "\n")))
	c.pod("held")
	<-e.asked
	c.stealLease()
	if code, errs := s.wait(); code != 1 || !strings.Contains(errs, "another scheduler has the lease") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if verb := <-e.canceled; verb != "filter" {
		t.Errorf("canceled: %s", verb)
	}
}

// TestPodsAreScheduledWhileAnExtenderAnswersExplain: the end of the client's request ends that to
// the extender.
// rule: S8.48
func TestPodsAreScheduledWhileAnExtenderAnswersExplain(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	c.node("a")
	s := c.runs("--leader-elect=false", "--config", e.file("filterVerb: filter", ""))
	c.pod("held")
	<-e.asked
	e.respond(`{"NodeNames": ["a"]}`)
	c.bound("held")
	e.hold()
	explained := make(chan string)
	explain := func() { explained <- s.read("/v1/explain?pod=held") }
	go explain()
	<-e.asked
	c.pod("next")
	c.bound("next")
	e.respond(`{"NodeNames": ["a"]}`)
	if page := <-explained; !strings.Contains(page, `"node":"a"`) || !strings.Contains(page, `"feasible":1`) {
		t.Errorf("explained: %s", page)
	}
	e.hold()
	go explain()
	<-e.asked
	if page := <-explained; !strings.HasPrefix(page, "503 ") {
		t.Errorf("explained without a response: %s", page)
	}
	if verb := <-e.canceled; verb != "filter" {
		t.Errorf("canceled: %s", verb)
	}
}

// rule: S8.65
func TestPodsAreScheduledWhileAnExtenderAnswersWhatIf(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	c.node("a")
	s := c.runs("--leader-elect=false", "--config", e.file("filterVerb: filter", ""))
	c.pod("first")
	c.bound("first")
	e.hold()
	answered := make(chan string)
	file := c.document("{apiVersion: v1, kind: Pod, metadata: {name: held}, spec: {containers: [{name: main}]}}")
	ask := func() {
		_, out, errs := s.whatIf(file)
		answered <- out + errs
	}
	go ask()
	<-e.asked
	c.pod("next")
	c.bound("next")
	e.respond(`{"NodeNames": ["a"]}`)
	if out := <-answered; !strings.HasPrefix(out, "default/held: 1 of 1 pods fit\n  the cluster changed while the pods were tried\n") {
		t.Errorf("the answer is %s", out)
	}
	e.hold()
	go ask()
	<-e.asked
	if out := <-answered; !strings.Contains(out, "\n1 of 1 pods are not tried: ") {
		t.Errorf("the answer without a response is %s", out)
	}
	if verb := <-e.canceled; verb != "filter" {
		t.Errorf("canceled: %s", verb)
	}
}

// TestPreemptionWaitsForAnExtender: the victim that the extender names has left its node
// before the response, so the pod fits.
// rule: S8.44
func TestPreemptionWaitsForAnExtender(t *testing.T) {
	c := newLiveCluster(t)
	e := newSlowExtender(t)
	c.node("a")
	s := c.runs("--leader-elect=false", "--config", e.file("preemptVerb: preempt", ""))
	for _, name := range []string{"low-1", "low-2"} {
		c.pod(name)
		c.bound(name)
	}
	held := func() {
		e.hold()
		c.pod("held", func(p *v1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" })
		<-e.asked
	}
	held()
	answer := fmt.Sprintf(`{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": %q}]}}}`, c.get("low-1").UID)
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "low-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	c.until("the victim has left", func() bool {
		return strings.Contains(s.read("/metrics"), `scheduler_cache_size{type="pods"} 1`+"\n")
	})
	e.respond(answer)
	c.bound("held")
	// The room is used again. Now the victim is there.
	if err := c.CoreV1().Pods("default").Delete(t.Context(), "held", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	c.pod("low-3")
	c.bound("low-3")
	held()
	e.respond(fmt.Sprintf(`{"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": %q}]}}}`, c.get("low-2").UID))
	c.until("the victim is terminating", func() bool { return c.get("low-2").DeletionTimestamp != nil })
	if c.get("low-3").DeletionTimestamp != nil {
		t.Error("the extender did not name low-3")
	}
}
