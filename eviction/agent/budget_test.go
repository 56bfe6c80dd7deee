package agent

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

func TestAnAgentHasEvictdHoldNoMoreThanABound(t *testing.T) {
	pod := func(i int) *wire.FromAgent {
		return &wire.FromAgent{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i))}}}
	}
	b := newBudget()
	const size = maxHeld / 10
	for i := range 30 {
		if got := b.allows(pod(i), size); got != (i < 10) {
			t.Errorf("pod %d: %v", i, got)
		}
	}
	for _, m := range []*wire.FromAgent{{Synced: true}, {Listed: true}, {API: &wire.API{}}, pod(3)} { // a pod that is known, and what is not kept
		if !b.allows(m, size) {
			t.Errorf("%+v is refused", m)
		}
	}
	for _, m := range []*wire.FromAgent{ // a removal beside an object makes no room
		{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "new"}}, Deleted: "new"}, {Sandbox: &inventory.Sandbox{ID: "s"}, Removed: "s"},
	} {
		if b.allows(m, size) {
			t.Errorf("%+v has room", m)
		}
	}
	container := &wire.FromAgent{Container: &inventory.Container{ID: "c"}}
	if b.allows(container, 100) {
		t.Error("a container has room")
	}
	if !b.allows(&wire.FromAgent{Deleted: "3"}, 10) || !b.allows(container, size) || b.allows(pod(20), size) {
		t.Error("the room of a deleted pod is not one pod's")
	}
	if b.allows(&wire.FromAgent{Removed: "c"}, 10); b.used != 9*size || len(b.held) != 9 {
		t.Errorf("%d bytes of %d", b.used, len(b.held))
	}
}
