package embeddedapi_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/wait"
)

var (
	everything    = labels.Everything()
	createOptions = metav1.CreateOptions{}
)

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestClientsReadBackWhatTheyWroteInEveryEncoding(t *testing.T) {
	for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf", "application/yaml"} {
		t.Run(encoding, func(t *testing.T) {
			s := serve(t, "")
			s.config.ContentType = encoding
			nodes := s.client(t).CoreV1().Nodes()
			made := must[*v1.Node](t)(nodes.Create(t.Context(), node("n1"), metav1.CreateOptions{}))
			if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Status.Allocatable.Cpu().String() != "4" {
				t.Errorf("not completed: %+v", made)
			}
			made.Labels["zone"] = "a"
			changed := must[*v1.Node](t)(nodes.Update(t.Context(), made, metav1.UpdateOptions{}))
			list := must[*v1.NodeList](t)(nodes.List(t.Context(), metav1.ListOptions{LabelSelector: "zone=a"}))
			if len(list.Items) != 1 || list.Items[0].ResourceVersion != changed.ResourceVersion {
				t.Errorf("listed %+v", list)
			}
			if _, err := nodes.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
				t.Errorf("an update of an old version: got %v, want a conflict", err)
			}
			if err := nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("after the deletion: %v", err)
			}
		})
	}
}

func TestInformersFollowWhatTheirSelectorsLetThrough(t *testing.T) {
	s := serve(t, "")
	client := s.client(t)
	must[*v1.Pod](t)(client.CoreV1().Pods("default").Create(t.Context(), pod("early"), metav1.CreateOptions{}))
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", "n1").String()
	}))
	var (
		mu   sync.Mutex
		seen []string
	)
	note := func(what string) func(any) {
		return func(o any) {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, what+" "+o.(*v1.Pod).Name)
		}
	}
	factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note("+"), DeleteFunc: note("-")})
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	if err := client.CoreV1().Pods("default").Bind(t.Context(), bindTo("early"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bound pod", func() bool { mu.Lock(); defer mu.Unlock(); return slices.Equal(seen, []string{"+ early"}) })
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "early", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool { mu.Lock(); defer mu.Unlock(); return slices.Equal(seen, []string{"+ early", "- early"}) })
}

func TestInformersSyncForEveryKindTheSchedulerWatches(t *testing.T) {
	client := serve(t, "").client(t)
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, informer := range []interface {
		Informer() cache.SharedIndexInformer
	}{
		factory.Core().V1().Nodes(), factory.Core().V1().Pods(), factory.Core().V1().Namespaces(), factory.Core().V1().Services(), factory.Core().V1().Events(),
		factory.Core().V1().PersistentVolumes(), factory.Core().V1().PersistentVolumeClaims(), factory.Core().V1().ReplicationControllers(),
		factory.Apps().V1().ReplicaSets(), factory.Apps().V1().StatefulSets(), factory.Apps().V1().DaemonSets(), factory.Policy().V1().PodDisruptionBudgets(),
		factory.Storage().V1().StorageClasses(), factory.Storage().V1().CSINodes(), factory.Storage().V1().CSIDrivers(), factory.Storage().V1().CSIStorageCapacities(),
		factory.Storage().V1().VolumeAttachments(), factory.Scheduling().V1().PriorityClasses(), factory.Node().V1().RuntimeClasses(),
		factory.Coordination().V1().Leases(), factory.Events().V1().Events(),
	} {
		informer.Informer()
	}
	factory.StartWithContext(t.Context())
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("%v: not synced", kind)
		}
	}
}

func TestInformersSurviveARestartOfTheServer(t *testing.T) {
	s := serve(t, "")
	client := s.client(t)
	must[*v1.Node](t)(client.CoreV1().Nodes().Create(t.Context(), node("before"), metav1.CreateOptions{}))
	before := must[*v1.NodeList](t)(client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	s.stop()
	again := serve(t, s.dir)
	client = again.client(t)
	if got := must[*v1.Node](t)(client.CoreV1().Nodes().Get(t.Context(), "before", metav1.GetOptions{})); got.UID != before.Items[0].UID {
		t.Errorf("another node is there: %v", got.UID)
	}
	w := must[watch.Interface](t)(client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion}))
	defer w.Stop()
	event := <-w.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the restart: got %v %v, want 410 Expired", event.Type, event.Object)
	}
	after := must[*v1.NodeList](t)(client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))
	if len(after.ResourceVersion) < len(before.ResourceVersion) || after.ResourceVersion <= before.ResourceVersion && len(after.ResourceVersion) == len(before.ResourceVersion) {
		t.Errorf("resource version went from %s to %s", before.ResourceVersion, after.ResourceVersion)
	}
}

func TestPodIsBoundOnceAndKeepsItsNode(t *testing.T) {
	client := serve(t, "").client(t)
	pods := client.CoreV1().Pods("default")
	must[*v1.Pod](t)(pods.Create(t.Context(), pod("p"), metav1.CreateOptions{}))
	if err := pods.Bind(t.Context(), bindTo("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Bind(t.Context(), bindTo("p"), metav1.CreateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `already assigned to node "n1"`) {
		t.Errorf("second binding: %v", err)
	}
	bound := must[*v1.Pod](t)(pods.Get(t.Context(), "p", metav1.GetOptions{}))
	if c := bound.Status.Conditions; bound.Spec.NodeName != "n1" || len(c) != 1 || c[0].Type != v1.PodScheduled || c[0].Status != v1.ConditionTrue {
		t.Errorf("bound to %q with %v", bound.Spec.NodeName, c)
	}
	bound.Spec.NodeName = "n2"
	if _, err := pods.Update(t.Context(), bound, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("another node by update: %v", err)
	}
}

func TestBoundPodIsTerminatingUntilItsAgentLetsGo(t *testing.T) {
	client := serve(t, "").client(t)
	pods := client.CoreV1().Pods("default")
	must[*v1.Pod](t)(pods.Create(t.Context(), pod("p"), metav1.CreateOptions{}))
	if err := pods.Bind(t.Context(), bindTo("p"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	asked := time.Now().Truncate(time.Second)
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p := must[*v1.Pod](t)(pods.Get(t.Context(), "p", metav1.GetOptions{}))
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 || p.DeletionTimestamp.Time.Before(asked.Add(30*time.Second)) {
		t.Fatalf("not terminating in 30 s: %v", p.ObjectMeta)
	}
	options := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions("another")}
	if err := pods.Delete(t.Context(), "p", options); !apierrors.IsConflict(err) {
		t.Errorf("deletion of another pod of the name: %v", err)
	}
	options.Preconditions = metav1.NewUIDPreconditions(string(p.UID))
	if err := pods.Delete(t.Context(), "p", options); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("still there: %v", err)
	}
}

// owned is a ready pod of a replica set.
func owned(t *testing.T, client kubernetes.Interface, set *appsv1.ReplicaSet, name string) {
	t.Helper()
	pods, p := client.CoreV1().Pods("default"), pod(name)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	must[*v1.Pod](t)(pods.Create(t.Context(), p, metav1.CreateOptions{}))
	if err := pods.Bind(t.Context(), bindTo(name), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	status := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	must[*v1.Pod](t)(pods.Patch(t.Context(), name, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status"))
}

func TestEvictionHonoursTheDisruptionBudget(t *testing.T) {
	client := serve(t, "").client(t)
	set := must[*appsv1.ReplicaSet](t)(client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](2)}}, metav1.CreateOptions{}))
	owned(t, client, set, "a")
	owned(t, client, set, "b")
	budgets := client.PolicyV1().PodDisruptionBudgets("default")
	must[*policyv1.PodDisruptionBudget](t)(budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, metav1.CreateOptions{}))
	budget := func() policyv1.PodDisruptionBudgetStatus {
		return must[*policyv1.PodDisruptionBudget](t)(budgets.Get(t.Context(), "web", metav1.GetOptions{})).Status
	}
	eventually(t, "a computed budget", func() bool {
		s := budget()
		return s.ExpectedPods == 2 && s.DesiredHealthy == 1 && s.CurrentHealthy == 2 && s.DisruptionsAllowed == 1
	})
	evict := func(name string) error {
		return client.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
	}
	if err := evict("a"); err != nil {
		t.Fatal(err)
	}
	a := must[*v1.Pod](t)(client.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{}))
	if !slices.ContainsFunc(a.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Reason == "EvictionByEvictionAPI"
	}) {
		t.Errorf("the evicted pod does not say why: %v", a.Status.Conditions)
	}
	if got := budget(); got.DisruptionsAllowed != 0 || got.CurrentHealthy != 1 {
		t.Errorf("after the eviction: %+v", got)
	}
	err := evict("b")
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if !apierrors.IsTooManyRequests(err) || !ok || cause.Message != "The disruption budget web needs 1 healthy pods and has 1 currently" {
		t.Errorf("second eviction: %v, %v", err, cause)
	}
}

func TestLeaderElectionHandsOverALease(t *testing.T) {
	client := serve(t, "").client(t)
	elect := func(ctx context.Context, name string, leads chan<- string) {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", "scheduler", client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
		if err != nil {
			t.Error(err)
			return
		}
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{Lock: lock, LeaseDuration: 2 * wait.Limit, RenewDeadline: wait.Limit, RetryPeriod: 50 * time.Millisecond,
			ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- name }, OnStoppedLeading: func() {}}})
	}
	leads := make(chan string, 2)
	var running sync.WaitGroup
	defer running.Wait()
	first, resign := context.WithCancel(t.Context())
	running.Go(func() { elect(first, "one", leads) })
	if got := <-leads; got != "one" {
		t.Fatal(got)
	}
	second, stop := context.WithCancel(t.Context())
	defer stop()
	running.Go(func() { elect(second, "two", leads) })
	resign()
	if got := <-leads; got != "two" {
		t.Fatal(got)
	}
}

func TestEventsAreTheSameInBothGroups(t *testing.T) {
	client := serve(t, "").client(t)
	p := must[*v1.Pod](t)(client.CoreV1().Pods("default").Create(t.Context(), pod("p"), metav1.CreateOptions{}))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	broadcaster.NewRecorder(scheme.Scheme, "test").Eventf(p, nil, v1.EventTypeNormal, "Scheduled", "Binding", "assigned to %s", "n1")
	eventually(t, "the event in the core group, by its object", func() bool {
		list := must[*v1.EventList](t)(client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=p,reason=Scheduled"}))
		return len(list.Items) == 1 && list.Items[0].Message == "assigned to n1" && list.Items[0].InvolvedObject.UID == p.UID
	})
	list := must[*eventsv1.EventList](t)(client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "regarding.name=p"}))
	if len(list.Items) != 1 || list.Items[0].Note != "assigned to n1" || list.Items[0].ReportingController != "test" {
		t.Errorf("events.k8s.io has %+v", list.Items)
	}
}

func TestNamespaceIsDeletedWithTheLastOfItsPods(t *testing.T) {
	client := serve(t, "").client(t)
	must[*v1.Namespace](t)(client.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{}))
	pods, p := client.CoreV1().Pods("team"), pod("p")
	p.Namespace = "team"
	must[*v1.Pod](t)(pods.Create(t.Context(), p, metav1.CreateOptions{}))
	if err := pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: v1.ObjectReference{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if ns := must[*v1.Namespace](t)(client.CoreV1().Namespaces().Get(t.Context(), "team", metav1.GetOptions{})); ns.Status.Phase != v1.NamespaceTerminating {
		t.Errorf("phase %s while a pod is ending", ns.Status.Phase)
	}
	q := pod("q")
	q.Namespace = "team"
	if _, err := pods.Create(t.Context(), q, metav1.CreateOptions{}); !apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause) {
		t.Errorf("a new pod in it: %v", err)
	}
	if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the namespace is still there: %v", err)
	}
}
