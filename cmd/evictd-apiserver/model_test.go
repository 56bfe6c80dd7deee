package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// TestNothingAcknowledgedIsLost runs random operations of several clients, with edits of
// manifests by hand between them, ends the server with SIGKILL at a random moment, edits manifests
// while it is gone, and compares what the next one serves with a naive model.
func TestNothingAcknowledgedIsLost(t *testing.T) { testModel(t, 6, 120) }

func TestCampaignNothingAcknowledgedIsLost(t *testing.T) {
	campaign.Only(t)
	testModel(t, campaign.Size(50, 2), campaign.Size(2000, 50))
}

func testModel(t *testing.T, rounds, operations int) {
	seed := campaign.Seed(t, uint64(time.Now().UnixNano()))
	t.Logf("EVICTD_SEED=%d", seed)
	dir := shortDir(t)
	clients := make([]*modelClient, 4)
	for i := range clients {
		clients[i] = &modelClient{t: t, random: rand.New(rand.NewPCG(seed, uint64(i))), dir: filepath.Join(dir, "data/configmaps/default"), objects: map[string][]string{}}
		for j := range 4 {
			clients[i].objects[fmt.Sprintf("c%d-%d", i, j)] = []string{""}
		}
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(clients))))
	for range rounds {
		c, client := startProgram(t, os.Args[0], dir, fmt.Sprint("--sync=", random.IntN(2) == 0))
		var killed atomic.Bool
		until := 1 + random.IntN(operations)
		api := client.CoreV1().ConfigMaps("default")
		var done atomic.Int64
		var running sync.WaitGroup
		seen := follow(t, client)
		for _, m := range clients {
			m.check(api)
			running.Go(func() {
				for m.step(api, &killed) {
					done.Add(1)
				}
			})
		}
		wait.Until(t, "the operations", func() bool { return done.Load() >= int64(until) || t.Failed() })
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond) // manifests are written between or during operations
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		c.Wait()
		killed.Store(true)
		running.Wait()
		seen()
		for _, m := range clients {
			m.editWhileDown()
		}
	}
	_, client := start(t, dir)
	for _, m := range clients {
		m.check(client.CoreV1().ConfigMaps("default"))
	}
}

// modelClient changes ConfigMaps that no other client changes. Of each it knows what may be
// stored: one value, or two where the server was killed during a request. No value is an empty one.
type modelClient struct {
	t        *testing.T
	random   *rand.Rand
	dir      string
	objects  map[string][]string
	revision uint64 // of the last acknowledged change
}

const valueKey = "v"

// check compares what is stored with what may be stored.
func (m *modelClient) check(api corev1.ConfigMapInterface) {
	m.t.Helper()
	for name, possible := range m.objects {
		value := ""
		object, err := api.Get(m.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			value = object.Data[valueKey]
		} else if !apierrors.IsNotFound(err) {
			m.t.Fatal(err)
		}
		if !slices.Contains(possible, value) {
			m.t.Errorf("%s is %q after a restart, want one of %q", name, value, possible)
		}
		m.objects[name] = []string{value}
	}
}

// step does one operation; false once the server is gone.
func (m *modelClient) step(api corev1.ConfigMapInterface, killed *atomic.Bool) bool {
	ctx := context.Background()
	name := slices.Sorted(maps.Keys(m.objects))[m.random.IntN(len(m.objects))]
	before, value := m.objects[name][0], fmt.Sprintf("x%d", m.random.Uint32())
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{valueKey: value}}
	var made *v1.ConfigMap
	var err error
	edited := false
	switch operation := m.random.IntN(10); {
	case before == "":
		made, err = api.Create(ctx, object, metav1.CreateOptions{})
	case operation < 3:
		made, err = api.Update(ctx, object, metav1.UpdateOptions{})
	case operation < 6:
		made, err = api.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{%q:%q}}`, valueKey, value), metav1.PatchOptions{})
	case operation < 8:
		value = ""
		err = api.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		wait.Until(m.t, "the manifest", func() bool { edited = m.holds(name, before); return edited || killed.Load() })
		if !edited {
			return false
		}
		m.edit(name, before, value)
		made, err = api.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"after":%q}}}`, value), metav1.PatchOptions{})
	}
	if _, refused := err.(apierrors.APIStatus); refused {
		m.t.Errorf("%s from %q to %q: %v", name, before, value, err)
		return false
	}
	if err != nil { // killed meanwhile: an edit is on the disk, a request may be
		m.objects[name] = []string{before, value}
		if edited {
			m.objects[name] = []string{value}
		}
		return false
	}
	m.objects[name] = []string{value}
	if made == nil {
		return true
	}
	revision, err := strconv.ParseUint(made.ResourceVersion, 10, 64)
	if err != nil || revision <= m.revision || made.Data[valueKey] != value {
		m.t.Errorf("%s: version %s after %d, value %q, want %q", name, made.ResourceVersion, m.revision, made.Data[valueKey], value)
	}
	m.revision = revision
	return true
}

// editWhileDown edits one of the manifests that hold what is stored.
func (m *modelClient) editWhileDown() {
	for name, possible := range m.objects {
		if before := possible[0]; len(possible) == 1 && before != "" && m.holds(name, before) {
			value := fmt.Sprintf("x%d", m.random.Uint32())
			m.edit(name, before, value)
			m.objects[name] = []string{value}
			return
		}
	}
}

func (m *modelClient) path(name string) string { return filepath.Join(m.dir, name+".yaml") }

func lineOf(value string) string { return valueKey + ": " + value + "\n" }

// holds says that the manifest has a value.
func (m *modelClient) holds(name, value string) bool {
	text, err := os.ReadFile(m.path(name))
	return err == nil && strings.Contains(string(text), lineOf(value))
}

// edit replaces the manifest, as an editor does.
func (m *modelClient) edit(name, before, value string) {
	m.t.Helper()
	edited := strings.Replace(string(require.ReadFile(m.t, m.path(name))), lineOf(before), lineOf(value), 1)
	whole := filepath.Join(m.dir, "."+name+".new")
	require.NoError(m.t, os.WriteFile(whole, []byte(edited), 0o640))
	require.NoError(m.t, os.Rename(whole, m.path(name)))
}

// follow watches until the server ends: each change comes once and in order, and what it is fits the
// changes before it. The function that it returns waits for the end.
func follow(t *testing.T, client kubernetes.Interface) (ended func()) {
	t.Helper()
	api := client.CoreV1().ConfigMaps("default")
	list, err := api.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	there := map[string]bool{}
	for _, o := range list.Items {
		there[o.Name] = true
	}
	last, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	require.NoError(t, err)
	var following sync.WaitGroup
	following.Go(func() {
		for event := range w.ResultChan() {
			o, ok := event.Object.(*v1.ConfigMap)
			if !ok {
				return // cut off in the middle of an event
			}
			revision, _ := strconv.ParseUint(o.ResourceVersion, 10, 64)
			if revision <= last || there[o.Name] != (event.Type != watch.Added) {
				t.Errorf("%s of %s with version %d after %d, while it is there: %v", event.Type, o.Name, revision, last, there[o.Name])
			}
			last, there[o.Name] = revision, event.Type != watch.Deleted
		}
	})
	return following.Wait
}
