package agent

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
)

// fakeKiller is a Killer that accepts victims and kills none.
type fakeKiller struct {
	Killer
	victims []kill.Victim
}

func (k *fakeKiller) Kill(v kill.Victim) error {
	k.victims = append(k.victims, v)
	return nil
}

// untold reports whether the last victim is left to the killer.
func (k *fakeKiller) untold() bool {
	elsewhere := k.victims[len(k.victims)-1].Elsewhere
	if elsewhere == nil {
		return true
	}
	select {
	case <-elsewhere:
		return true
	default:
		return false
	}
}

// withRuntime is an Agent whose runtime answers when the test says so.
func withRuntime() *Agent {
	a := New(Config{}, nil, slog.New(slog.DiscardHandler))
	a.running, a.runtime = true, &inventory.Runtime{Connected: true}
	return a
}

// ordersOf takes the orders that have been given, as "kind target".
func ordersOf(a *Agent) (given []wire.Order, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	given, a.out.orders = a.out.orders, nil
	var all []string
	for _, o := range given {
		all = append(all, string(o.Kind)+" "+o.Target)
	}
	return given, strings.Join(all, ", ")
}

func stopper(a *Agent, running Running) (*CRIStopper, *fakeKiller) {
	killer := &fakeKiller{}
	return NewCRIStopper(killer, a, func(types.UID, string) Running { return running }, slog.New(slog.DiscardHandler)), killer
}

var family = Running{Containers: []string{"a", "b"}, Sidecars: []string{"first", "second"}, Sandboxes: []string{"s"}}

func TestSoftVictimIsStoppedByTheRuntimeInOrder(t *testing.T) {
	a := withRuntime()
	k, killer := stopper(a, Running{family.Containers, slices.Clone(family.Sidecars), family.Sandboxes})
	require.NoError(t, k.Kill(kill.Victim{UID: "u", Soft: true, Grace: 10 * time.Second}))
	for _, want := range []string{"stopContainer a, stopContainer b", "stopContainer second", "stopContainer first", "stopSandbox s"} {
		given, got := ordersOf(a)
		if got != want {
			t.Fatalf("orders %q, want %q", got, want)
		}
		for i, o := range given {
			if o.Kind == wire.StopContainer && (o.Grace > 10*time.Second || time.Until(o.Deadline.Time) > 10*time.Second) {
				t.Errorf("order %+v outlives the grace", o)
			}
			if len(a.out.orders) > 0 {
				t.Errorf("%+v before all of %+v were done", a.out.orders[0], given[i:])
			}
			a.finishOrder(&wire.Done{ID: o.ID})
		}
	}
	if killer.untold() {
		t.Error("the victim is left to the killer although the runtime stopped it")
	}
}

func TestVictimIsLeftToTheKillerWhereTheRuntimeDoesNotStopIt(t *testing.T) {
	for name, fail := range map[string]func(*Agent, wire.Order){
		"an order fails":    func(a *Agent, o wire.Order) { a.finishOrder(&wire.Done{ID: o.ID, Error: "no"}) },
		"the agent is lost": func(a *Agent, _ wire.Order) { a.abandon(io.EOF) },
		"a later order is not taken": func(a *Agent, o wire.Order) {
			a.runtime = &inventory.Runtime{}
			a.finishOrder(&wire.Done{ID: o.ID})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := withRuntime()
			k, killer := stopper(a, Running{Containers: []string{"a"}, Sidecars: []string{"side"}, Sandboxes: []string{"s"}})
			require.NoError(t, k.Kill(kill.Victim{UID: "u", Soft: true, Grace: time.Second}))
			if killer.untold() {
				t.Fatal("the victim is left to the killer from the start")
			}
			given, _ := ordersOf(a)
			fail(a, given[0])
			if !killer.untold() {
				t.Error("no process stops the victim")
			}
		})
	}
}

func TestHardVictimIsKilledAtOnceAndItsSandboxStoppedAfterwards(t *testing.T) {
	a := withRuntime()
	k, killer := stopper(a, family)
	for _, v := range []kill.Victim{{UID: "hard", Grace: time.Second}, {UID: "soft", Soft: true, Grace: 0}} {
		require.NoError(t, k.Kill(v))
		if _, got := ordersOf(a); !killer.untold() || got != "" {
			t.Errorf("%s: orders %q, want none", v.UID, got)
		}
		killer.victims[len(killer.victims)-1].Ended()
		killer.victims[len(killer.victims)-1].Ended()
		if _, got := ordersOf(a); got != "stopSandbox s" {
			t.Errorf("%s: orders %q once it has ended, want its sandbox stopped", v.UID, got)
		}
	}
}

func TestVictimThatTheRuntimeDoesNotRunIsTheKillersAlone(t *testing.T) {
	a := withRuntime()
	k, killer := stopper(a, Running{})
	require.NoError(t, k.Kill(kill.Victim{UID: "u", Soft: true, Grace: time.Minute}))
	if v := killer.victims[0]; v.Elsewhere != nil || v.Ended != nil {
		t.Errorf("victim %+v, want it as it was", v)
	}
}

// rule: M.153
func TestOnlyTheContainerThatIsRestartedIsStopped(t *testing.T) {
	a := withRuntime()
	k, killer := stopper(a, Running{Containers: []string{"app"}})
	require.NoError(t, k.Kill(kill.Victim{UID: "u", Container: "app", Soft: true, Grace: 10 * time.Second}))
	given, got := ordersOf(a)
	if got != "stopContainer app" {
		t.Fatalf("orders %q, want that of the container", got)
	}
	a.finishOrder(&wire.Done{ID: given[0].ID})
	if _, more := ordersOf(a); more != "" || killer.untold() {
		t.Errorf("after the container %q was stopped", more)
	}
	require.NoError(t, k.Kill(kill.Victim{UID: "u", Container: "app", Grace: time.Second}))
	if _, got := ordersOf(a); got != "" {
		t.Errorf("a hard threshold waits for %q", got)
	}
}

func TestOrdersAreRefusedWithoutARuntimeAndBounded(t *testing.T) {
	a := withRuntime()
	failed := 0
	for i := range maxOrders {
		require.NoError(t, a.Order(wire.Order{Kind: wire.RemoveImage, Target: fmt.Sprint(i)}, func(err error) {
			if errors.Is(err, wire.ErrAway) {
				failed++
			}
		}))
	}
	if err := a.Order(wire.Order{}, nil); !errors.Is(err, ErrManyOrders) {
		t.Errorf("%v, want %v", err, ErrManyOrders)
	}
	a.finishOrder(&wire.Done{ID: 1, Error: "rpc error", Away: true})
	a.abandon(io.EOF)
	if failed != maxOrders {
		t.Errorf("%d orders have failed with the agent, want %d", failed, maxOrders)
	}
	if err := a.Order(wire.Order{}, nil); !errors.Is(err, wire.ErrAway) {
		t.Errorf("%v, want %v", err, wire.ErrAway)
	}
}

func TestWhatTheRuntimeHasIsSortedAndSurvivesTheAgent(t *testing.T) {
	a := withRuntime()
	a.runtime = nil
	if a.Runtime() != nil {
		t.Error("a runtime before one was received")
	}
	size := int64(7)
	for _, m := range []wire.FromAgent{
		{Runtime: &inventory.Runtime{Connected: true, Name: "r"}},
		{Layers: []inventory.Layer{{Container: "unknown"}}},
		{Sandbox: &inventory.Sandbox{ID: "s2", Name: "b"}}, {Sandbox: &inventory.Sandbox{ID: "s1", Name: "a", Image: "i1"}},
		{Container: &inventory.Container{ID: "c", Sandbox: "s1", Image: "i1", ImageVolumes: []string{"i2"}}}, {Container: &inventory.Container{ID: "d", Sandbox: "s2"}},
		{Layers: []inventory.Layer{{Container: "c", Bytes: &size}}},
		{Image: &inventory.Image{ID: "i2"}}, {Image: &inventory.Image{ID: "i1"}},
		{Removed: "d"}, {Listed: true},
	} {
		a.handle(&m)
	}
	check := func() {
		t.Helper()
		i := a.Runtime()
		if len(i.Sandboxes) != 2 || i.Sandboxes[0].ID != "s1" || len(i.Containers) != 1 || *i.Containers[0].Layer.Bytes != size || len(i.Images) != 2 || i.Images[0].ID != "i1" {
			t.Errorf("inventory %+v", i)
		}
		if users := i.ImageUsers(); fmt.Sprint(users["i1"], users["i2"]) != "[s1 c] [c]" {
			t.Errorf("users %v", users)
		}
	}
	check()
	if first := a.Runtime(); first != a.Runtime() {
		t.Error("the same inventory is made twice")
	}
	a.lost(io.EOF)
	check()
	if i := a.Runtime(); i.Connected || i.Error == "" {
		t.Errorf("stands %+v, want it away", i.Runtime)
	}
	a.handle(&wire.FromAgent{Image: &inventory.Image{ID: "i3"}})
	check()
	a.handle(&wire.FromAgent{Listed: true})
	if i := a.Runtime(); len(i.Images) != 1 || len(i.Sandboxes) != 0 {
		t.Errorf("inventory %+v, want what the new agent has sent", i)
	}
}
