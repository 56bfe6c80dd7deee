package workloads_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/cmd/evictd-playground/workloads"
	"github.com/evictd/evictd/internal/embeddedapi/apitest"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

const set = `{metadata: {generateName: web-, namespace: default}, spec: {replicas: 3, selector: {matchLabels: {app: web}}, template: {
	metadata: {labels: {app: web}}, spec: {priority: 0, containers: [{name: app, image: i}]}}}}`

// shop is a controller, and a set that it looks after.
type shop struct {
	t      *testing.T
	client kubernetes.Interface
	set    *appsv1.ReplicaSet
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, client: apitest.New(t), set: &appsv1.ReplicaSet{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- workloads.New(s.client, slog.New(slog.DiscardHandler)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	err := manifest.Decode([]byte(set), s.set)
	if err == nil {
		s.set, err = s.client.AppsV1().ReplicaSets("default").Create(t.Context(), s.set, metav1.CreateOptions{})
	}
	require.NoError(t, err)
	return s
}

// pods are those of the set that are not over.
func (s *shop) pods() (names []string) {
	s.t.Helper()
	all, err := s.client.CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
	require.NoError(s.t, err)
	for _, p := range all.Items {
		if metav1.IsControlledBy(&p, s.set) && p.Status.Phase != v1.PodFailed && p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// await returns the names once the set has so many pods, none of them the one without,
// and its status says so.
func (s *shop) await(count int, without string) (names []string) {
	s.t.Helper()
	wait.Until(s.t, fmt.Sprintf("%d pods of the set without %q", count, without), func() bool {
		names = s.pods()
		now, err := s.client.AppsV1().ReplicaSets("default").Get(s.t.Context(), s.set.Name, metav1.GetOptions{})
		require.NoError(s.t, err)
		return len(names) == count && !slices.Contains(names, without) && int(now.Status.Replicas) == count
	})
	return names
}

func TestWhatWasEvictedOrDeletedIsRecreated(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	names := s.await(3, "")
	_, err := s.client.CoreV1().Pods("default").Patch(t.Context(), names[0], "application/merge-patch+json", []byte(`{"status":{"phase":"Failed","reason":"Evicted"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	s.await(3, names[0])
	require.NoError(t, s.client.CoreV1().Pods("default").Delete(t.Context(), names[1], metav1.DeleteOptions{}))
	s.await(3, names[1])
}

func TestASetHasAsManyPodsAsItAsksFor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	names := s.await(3, "")
	bind := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: names[2]}, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}
	require.NoError(t, s.client.CoreV1().Pods("default").Bind(t.Context(), bind, metav1.CreateOptions{}))
	scale := func(replicas string) {
		t.Helper()
		if _, err := s.client.AppsV1().ReplicaSets("default").Patch(t.Context(), s.set.Name, "application/merge-patch+json", []byte(`{"spec":{"replicas":`+replicas+`}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	scale("1")
	if left := s.await(1, ""); left[0] != names[2] {
		t.Errorf("%s is left, want %s, which is bound", left[0], names[2])
	}
	scale("4")
	s.await(4, "")
	scale("0")
	s.await(0, "")
}
