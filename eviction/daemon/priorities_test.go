package daemon

import (
	"log/slog"
	"maps"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
)

// rule: M.71
func TestACriticalPodIsProtectedWhileOnlyTheRuntimeHasIt(t *testing.T) {
	open := func() *journal.Journal {
		j, err := journal.Open(t.TempDir(), slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return j
	}
	kept := open()
	pod := func(uid types.UID, priority int32) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, UID: uid}, Spec: v1.PodSpec{Priority: &priority}}
	}
	before := newPriorities(kept, slog.New(slog.DiscardHandler))
	before.keep([]*v1.Pod{pod("dns", podspec.SystemCriticalPriority), pod("app", 0), pod("low", -5)})
	if want := map[types.UID]int32{"dns": podspec.SystemCriticalPriority, "app": 0, "low": -5}; !maps.Equal(before.kept, want) {
		t.Errorf("kept %v, want %v", before.kept, want)
	}

	after := pods.Estimator{Priorities: newPriorities(kept, slog.New(slog.DiscardHandler)).kept, Unlisted: true}
	has := &inventory.Snapshot{}
	for _, uid := range []types.UID{"dns", "app", "low"} {
		has.Sandboxes = append(has.Sandboxes, inventory.Sandbox{ID: string(uid), UID: uid, Namespace: metav1.NamespaceSystem, Name: string(uid), Ready: true})
		has.Containers = append(has.Containers, inventory.Container{ID: "c" + string(uid), Sandbox: string(uid), Name: "c", State: inventory.ContainerRunning})
	}
	estimated, _ := after.Match(nil, has, "node")
	protected := map[types.UID]eviction.Protection{}
	for _, p := range estimated {
		protected[p.UID] = eviction.Digest(p).Protection
	}
	if want := map[types.UID]eviction.Protection{"dns": eviction.CriticalPriority, "app": "", "low": ""}; !maps.Equal(protected, want) {
		t.Errorf("protected %v, want %v", protected, want)
	}
	newPriorities(nil, nil).keep([]*v1.Pod{pod("a", 1)}) // without a journal
}
