package suite_test

import (
	"fmt"
	"testing"

	lifecycle "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/harness/kube"
)

// requested is a node whose evictd requests the eviction of soft victims of a kube-apiserver, and the only pod of it, which
// uses more than the soft threshold leaves.
type requested struct {
	t   *testing.T
	n   *harness.Node
	api *kube.API
	pod *harness.Pod
	d   *harness.Evictd
}

func newRequested(t *testing.T, mode, deadline string) *requested {
	t.Helper()
	n := harness.NewNode(t, 256*harness.MiB, 200)
	r := &requested{t: t, n: n, api: kube.New(n)}
	_, err := r.api.CoreV1().Nodes().Create(t.Context(), node(r.api.Node), metav1.CreateOptions{})
	require.NoError(t, err)
	r.pod = r.api.CreatePod(n, "victim", sandbox.Spec{}, nil)
	r.pod.Do("hold 100Mi")
	r.start(mode, deadline)
	r.await(lifecycle.EvictionRequestIntentEviction)
	return r
}

// start starts evictd, or the next one.
func (r *requested) start(mode, deadline string) {
	r.t.Helper()
	r.d = r.n.Evictd(append(r.api.Flags, sandbox.Mode(mode), sandbox.SoftEviction("request"), sandbox.SoftDeadline(deadline), sandbox.EvictionHard("memory.available<1Mi"),
		sandbox.EvictionSoft("memory.available<192Mi"), sandbox.SoftGrace("memory.available=100ms"), "--eviction-pressure-transition-period=0s", "--housekeeping-interval=1s")...)
}

// await waits until there is one EvictionRequest, with an intent.
func (r *requested) await(intent lifecycle.EvictionRequestIntent) {
	r.t.Helper()
	await(r.t, fmt.Sprintf("an EvictionRequest with the intent %s", intent), func() bool {
		list, err := r.api.LifecycleV1alpha1().EvictionRequests(r.api.Namespace).List(r.t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		if len(list.Items) > 1 || list.Items[0].Spec.Target.Pod == nil || list.Items[0].Spec.Target.Pod.UID != r.pod.UID {
			r.t.Fatalf("EvictionRequests %+v", list.Items)
		}
		return list.Items[0].Spec.Intent == intent
	})
}

// mustBeUntouched fails the test where evictd has evicted the pod, or done more than to request that.
func (r *requested) mustBeUntouched() {
	r.t.Helper()
	harness.MustRun(r.t, r.pod)
	if pod := r.api.Pod(r.t, "victim"); pod.DeletionTimestamp != nil || kube.Evicted(pod) {
		r.t.Errorf("the pod is %+v", pod.Status)
	}
	if events := r.api.Events(r.t, r.api.Namespace, "victim"); events["Evicted"]+events["EvictionRequestOverridden"] > 0 {
		r.t.Errorf("events %v of the pod", events)
	}
}

// TestASoftVictimIsEvictedByRequest runs evictd, its agent with the rights of deploy/rbac, and a kube-apiserver that has EvictionRequests. The test is
// the responder and the kubelet.
//
// rule: M.164
// rule: M.165
// rule: M.168
func TestASoftVictimIsEvictedByRequest(t *testing.T) {
	a := openWithEvictionRequests(t)
	a.grant()
	t.Setenv(kube.KubeconfigVariable, a.Kubeconfig(apiserver.Admin))
	const never = "24h"
	t.Run("a responder deletes the pod", func(t *testing.T) {
		r := newRequested(t, "backstop", never)
		pods := r.api.CoreV1().Pods(r.api.Namespace)
		require.NoError(t, pods.Delete(t.Context(), "victim", metav1.DeleteOptions{GracePeriodSeconds: new(int64(300))}))
		r.d.AwaitLog("the API server has granted the eviction")
		r.pod.Send("exit 0") // as its kubelet has it end
		r.d.AwaitGone(r.pod)
		if state := r.pod.State(); !state.Success() {
			t.Errorf("the pod ended by %v", state)
		}
		if pod := r.api.Pod(t, "victim"); kube.Evicted(pod) {
			t.Errorf("the pod is reported as evicted: %+v", pod.Status)
		}
		r.api.Delete(t, "victim")
	})
	t.Run("no responder does anything", func(t *testing.T) {
		r := newRequested(t, "native", "2s")
		e := r.d.AwaitGone(r.pod)
		if waited := e.Signalled.Sub(e.Decided.Time).Seconds(); waited < 2 {
			t.Errorf("the pod was signalled after %v s", waited)
		}
		r.api.AwaitEvicted(t, "victim")
		r.api.AwaitEvent(t, r.api.Namespace, "victim", "EvictionRequestOverridden")
		r.await(lifecycle.EvictionRequestIntentEviction) // it is fulfilled: the pod has ended
	})
	t.Run("the pressure ends", func(t *testing.T) {
		r := newRequested(t, "backstop", never)
		r.pod.Do("hold 1Mi")
		r.await(lifecycle.EvictionRequestIntentWithdrawn)
		r.mustBeUntouched()
		r.pod.Do("hold 100Mi")
		r.await(lifecycle.EvictionRequestIntentEviction)
		r.mustBeUntouched()
	})
	t.Run("evictd is killed", func(t *testing.T) {
		r := newRequested(t, "backstop", never)
		r.d.Kill()
		r.start("backstop", never) // it withdraws the request, and makes it stand again
		r.d.AwaitEviction(r.pod, nil)
		r.await(lifecycle.EvictionRequestIntentEviction)
		r.d.Kill()
		r.pod.Do("hold 1Mi")
		r.start("backstop", never)
		r.await(lifecycle.EvictionRequestIntentWithdrawn)
		r.d.Await("the pod to be no victim", func(s *nodestatus.Status) bool { return len(s.Evictions) == 0 })
		r.mustBeUntouched()
	})
	t.Run("evictd is killed, and the next one requests nothing", func(t *testing.T) {
		r := newRequested(t, "backstop", never)
		r.d.Kill()
		r.d = r.n.Evictd(append(r.api.Flags, sandbox.Mode("backstop"), sandbox.SoftEviction("api"), sandbox.EvictionHard("memory.available<1Mi"))...)
		r.await(lifecycle.EvictionRequestIntentWithdrawn)
		r.mustBeUntouched()
	})
}
