package kube

import (
	"log/slog"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// recordedInformer is an informer that keeps the handler which is registered with it.
type recordedInformer struct {
	cache.SharedIndexInformer
	handler cache.ResourceEventHandler
}

func (s *recordedInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.handler = h
	return registration{}, nil
}

type registration struct {
	cache.ResourceEventHandlerRegistration
}

func (registration) HasSynced() bool { return true }

// received has a handler of a kind receive what an informer sends, and returns the calls that follow, as old>new by uid.
func received[T object](t *testing.T, send func(cache.ResourceEventHandler)) (calls []string) {
	t.Helper()
	var none T
	uid := func(o T) string {
		if o == none {
			return ""
		}
		return string(o.GetUID())
	}
	s := &recordedInformer{}
	if err := handle(&Watch{log: slog.New(slog.DiscardHandler)}, s, func(old, obj T) { calls = append(calls, uid(old)+">"+uid(obj)) }); err != nil {
		t.Fatal(err)
	}
	send(s.handler)
	return calls
}

// TestEventsOfARelist: after a list that an informer makes again, an object of the same name may be another one, and a deletion may come
// without the last state.
func TestEventsOfARelist(t *testing.T) {
	object := func(uid types.UID) *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}} }
	a, b := object("a"), object("b")
	for name, c := range map[string]struct {
		send func(cache.ResourceEventHandler)
		want []string
	}{
		"changed":                    {func(h cache.ResourceEventHandler) { h.OnUpdate(a, a) }, []string{"a>a"}},
		"replaced":                   {func(h cache.ResourceEventHandler) { h.OnUpdate(a, b) }, []string{"a>", ">b"}},
		"replaced twice":             {func(h cache.ResourceEventHandler) { h.OnUpdate(a, b); h.OnUpdate(b, a) }, []string{"a>", ">b", "b>", ">a"}},
		"added twice":                {func(h cache.ResourceEventHandler) { h.OnAdd(a, true); h.OnAdd(a, true) }, []string{">a", ">a"}},
		"deleted":                    {func(h cache.ResourceEventHandler) { h.OnDelete(a) }, []string{"a>"}},
		"deleted, last state":        {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "p", Obj: a}) }, []string{"a>"}},
		"deleted without last state": {func(h cache.ResourceEventHandler) { h.OnDelete(cache.DeletedFinalStateUnknown{Key: "p"}) }, nil},
		"deleted and added": {func(h cache.ResourceEventHandler) {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: "p", Obj: a})
			h.OnAdd(b, false)
		}, []string{"a>", ">b"}},
	} {
		if got := received[*v1.Pod](t, c.send); !slices.Equal(got, c.want) {
			t.Errorf("%s, of pods: %v, expected %v", name, got, c.want)
		}
		if got := received[metav1.Object](t, c.send); !slices.Equal(got, c.want) {
			t.Errorf("%s, of any object: %v, expected %v", name, got, c.want)
		}
	}
}
