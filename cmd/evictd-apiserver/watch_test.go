package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func TestEachWatchSeesItsOwnChanges(t *testing.T) { testWatches(t, 10, 50) }

func TestCampaignThousandWatchesOfTwoHundredClients(t *testing.T) {
	campaign.Only(t)
	testWatches(t, campaign.Size(200, 4), campaign.Size(1000, 20))
}

// testWatches follows the pods of as many nodes as there are watches, and creates, binds and deletes a pod on each
// of them: every watch has the three changes of its pod, in order, and no others.
func testWatches(t *testing.T, clients, watches int) {
	dir := shortDir(t)
	start(t, dir)
	ctx := t.Context()
	all := make([]*kubernetes.Clientset, clients)
	for i := range all {
		config, err := kubeclient.Config("", "unix:"+filepath.Join(dir, "api.sock"))
		require.NoError(t, err)
		config.QPS = -1
		all[i], err = kubernetes.NewForConfig(config)
		require.NoError(t, err)
	}
	var mu sync.Mutex
	seen, ended := make([]string, watches), 0
	var following sync.WaitGroup
	streams := make([]watch.Interface, watches)
	for i := range watches {
		stream, err := all[i%clients].CoreV1().Pods("").Watch(ctx, metav1.ListOptions{FieldSelector: fmt.Sprint("spec.nodeName=n", i), ResourceVersion: "0"})
		require.NoError(t, err)
		streams[i] = stream
		following.Go(func() {
			for event := range stream.ResultChan() {
				mu.Lock()
				if p, ok := event.Object.(*v1.Pod); ok {
					seen[i] += fmt.Sprint(event.Type, " ", p.Name, " ")
				} else {
					seen[i] += fmt.Sprint(event)
				}
				if event.Type == watch.Deleted {
					ended++
				}
				mu.Unlock()
			}
		})
	}
	var writing sync.WaitGroup
	for c := range min(clients, 8) {
		writing.Go(func() {
			for i := c; i < watches; i += min(clients, 8) {
				if err := live(t, all[c], fmt.Sprint("p", i), fmt.Sprint("n", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	wait.Until(t, "the events", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ended == watches || t.Failed()
	})
	mu.Lock()
	got := slices.Clone(seen) // a stream that is stopped may end with an error of its own
	mu.Unlock()
	for _, stream := range streams {
		stream.Stop()
	}
	following.Wait()
	for i, events := range got {
		if want := fmt.Sprintf("ADDED p%d MODIFIED p%d DELETED p%d", i, i, i); strings.TrimSpace(events) != want {
			t.Errorf("the watch of n%d has %s; expected %s", i, events, want)
		}
	}
}

// live is the life of a pod on a node.
func live(t *testing.T, client *kubernetes.Clientset, name, node string) error {
	pods := client.CoreV1().Pods("default")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := pods.Bind(t.Context(), &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	pod, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status.Phase = v1.PodRunning
	if _, err := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return pods.Delete(t.Context(), name, *metav1.NewDeleteOptions(0))
}
