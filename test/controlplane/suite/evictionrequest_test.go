package suite_test

import (
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/kube"
	"github.com/evictd/evictd/test/controlplane/apiserver"
)

// openWithEvictionRequests starts a kube-apiserver that has EvictionRequests.
func openWithEvictionRequests(t *testing.T) *api {
	t.Helper()
	return open(t, func(testing.TB) (*apiserver.Server, error) {
		server, err := apiserver.NewKubeAPIServer("--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true")
		if err == nil {
			t.Cleanup(func() { _ = server.Stop() })
		}
		return server, err
	})
}

// TestSoftVictimsAreRequestedByAnObject has evictd's agent, with the rights of deploy/rbac, make an EvictionRequest of a
// kube-apiserver that has them, withdraw it, make it stand again, and see the pod be deleted.
//
// rule: M.165
func TestSoftVictimsAreRequestedByAnObject(t *testing.T) {
	a := openWithEvictionRequests(t)
	a.grant()
	a.createNodes(node("n1"))
	a.createPods(pod("victim", "", func(p *v1.Pod) { p.Spec.NodeName = "n1" }))
	victim, err := a.admin.CoreV1().Pods("default").Get(t.Context(), "victim", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan wire.EvictionResponse, 1000)
	publisher := kube.New(a.agentOf("n1"), wire.Node{Name: "n1", Publish: true, StatusFrequency: time.Second}, nodestatus.Backstop, kube.NewRequests(), func(m wire.FromAgent) {
		if m.EvictionResponse != nil {
			answers <- *m.EvictionResponse
		}
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ran := make(chan struct{})
	go func() { defer close(ran); _ = publisher.Run(t.Context()) }()
	t.Cleanup(func() { <-ran })
	intent := func() lifecycle.EvictionRequestIntent {
		object, err := a.admin.LifecycleV1alpha1().EvictionRequests("default").Get(t.Context(), "evictd-"+string(victim.UID), metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return object.Spec.Intent
	}
	request := func(withdrawn bool) {
		if !withdrawn {
			publisher.Handle(wire.ToAgent{Intent: &wire.Intent{ID: "1", UID: victim.UID, Namespace: "default", Name: "victim", Signal: "memory.available", Requested: true, Decided: time.Now()}})
		}
		publisher.Handle(wire.ToAgent{EvictionRequest: &wire.EvictionRequest{
			UID: victim.UID, Pod: "default/victim", GraceSeconds: 1, Deadline: wire.Instant{Time: time.Now().Add(wait.Limit)}, Object: true, Withdrawn: withdrawn,
		}})
	}
	request(false)
	await(t, "the request", func() bool { return intent() == lifecycle.EvictionRequestIntentEviction })
	if refused := <-answers; refused.Refused == "" {
		t.Error("the eviction is granted before the pod is being deleted")
	}
	request(true)
	await(t, "the withdrawal", func() bool { return intent() == lifecycle.EvictionRequestIntentWithdrawn })
	request(false)
	await(t, "the request to stand again", func() bool { return intent() == lifecycle.EvictionRequestIntentEviction })
	if err := a.admin.CoreV1().Pods("default").Delete(t.Context(), "victim", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	granted := false
	await(t, "the eviction to be granted", func() bool {
		for {
			select {
			case answer := <-answers:
				granted = answer.Refused == ""
			default:
				return granted
			}
		}
	})
}
