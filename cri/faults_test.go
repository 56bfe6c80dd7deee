package cri

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/cri/critest"
	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// healthy is what is known of a runtime with ten pods, and done by it.
var healthy = map[string]int{"pods": 10, "cgroups": 10, "containers": 10, "scores": 10, "images": 10, "layers": 10, "disks": 1, "name": 1, "stops": 1}

// lost is what is not known while a method has a fault; all else stays in use. OneInTen has a list of its own
// where one object in ten makes a difference.
var lost = []struct {
	method   string
	all, ten map[string]int
}{
	{"Version", map[string]int{"name": 0}, nil},
	{"Status", nil, nil},
	{"ListPodSandbox", nil, nil}, // the labels of the containers have the pods
	{"PodSandboxStatus", map[string]int{"cgroups": 0}, map[string]int{"cgroups": 1}},
	{"ListContainers", map[string]int{"containers": 0, "scores": 0, "layers": 0}, map[string]int{"containers": 1, "scores": 1, "layers": 1}},
	{"ContainerStatus", map[string]int{"scores": 0}, map[string]int{"scores": 1}},
	{"ListImages", map[string]int{"images": 0}, map[string]int{"images": 1}},
	{"ListContainerStats", nil, map[string]int{"layers": 1}}, // each container is asked for by itself
	{"ImageFsInfo", map[string]int{"disks": 0}, nil},
}

// TestAMethodThatFailsTakesNothingElseWithIt has each method have each fault, from the start or later, for some
// minutes, and then end.
//
// rule: M.190
func TestAMethodThatFailsTakesNothingElseWithIt(t *testing.T) {
	for _, l := range lost {
		for _, fault := range critest.Faults {
			want := maps.Clone(healthy)
			maps.Copy(want, l.all)
			if fault == critest.OneInTen {
				want = maps.Clone(healthy)
				maps.Copy(want, l.ten)
			}
			t.Run(fmt.Sprintf("%s %s", l.method, fault), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { failMethod(t, l.method, fault, want) })
			})
		}
	}
}

func failMethod(t *testing.T, method string, fault critest.Fault, want map[string]int) {
	var pods []critest.Pod
	for i := range 10 {
		uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		pods = append(pods, critest.Pod{Number: i, UID: uid, Namespace: "shop", Name: fmt.Sprintf("pod-%d", i), Cgroup: "/kubepods/pod" + uid, OOMScoreAdj: 900, LayerBytes: 4096})
	}
	f := critest.New("cri-o", "1.34.0", "/images", pods...)
	f.Faults = map[string]critest.Fault{method: fault}
	s := make(socket)
	t.Cleanup(serve(f, s))
	log := &lines{}
	r, h := listen(t, s, log)
	time.Sleep(time.Minute)
	if got := known(t, r, h); !maps.Equal(got, want) {
		t.Errorf("known are %v, want %v", got, want)
	}
	if state := h.state(); !state.Connected || state.Error != "" {
		t.Errorf("the state is %+v, want the runtime connected", state)
	}
	// What a fault that has begun is said with does not depend on how long it lasts.
	before := log.count()
	time.Sleep(2 * time.Minute)
	if said := log.count() - before; said > 0 || before > 4 {
		t.Errorf("%d lines are logged, and in the minutes after them %d:\n%v", before, said, log)
	}
	if (fault == critest.Fails || fault == critest.Hangs) && h.state().Failing[method] == "" || fault == critest.Unimplemented && !slices.Contains(h.state().Missing, method) {
		t.Errorf("the state has %v as failing and %v as missing, want %s", h.state().Failing, h.state().Missing, method)
	}
	// A fault that comes to a runtime that has answered leaves what the runtime has said.
	f.Change(func(f *critest.Server) { f.Faults = nil })
	time.Sleep(150 * time.Second)
	if got := known(t, r, h); !maps.Equal(got, healthy) && fault != critest.Unimplemented {
		t.Errorf("after the fault %v are known, want %v", got, healthy)
	}
	if state := h.state(); len(state.Failing) > 0 {
		t.Errorf("the state still names %v as failing", state.Failing)
	}
}

// known counts what the messages of a Runtime leave, and tries a stop.
func known(t *testing.T, r *Runtime, h *received) map[string]int {
	t.Helper()
	sandboxes, containers, images, layers := map[string]inventory.Sandbox{}, map[string]inventory.Container{}, map[string]bool{}, map[string]bool{}
	h.mu.Lock()
	orders := uint64(len(h.messages))
	for _, m := range h.messages {
		switch {
		case m.Sandbox != nil:
			sandboxes[m.Sandbox.ID] = *m.Sandbox
		case m.Container != nil:
			containers[m.Container.ID] = *m.Container
		case m.Image != nil:
			images[m.Image.ID] = true
		case m.Removed != "":
			delete(sandboxes, m.Removed)
			delete(containers, m.Removed)
			delete(images, m.Removed)
			delete(layers, m.Removed)
		}
		for _, layer := range m.Layers {
			layers[layer.Container] = *layer.Bytes == 4096
		}
	}
	h.mu.Unlock()
	state := h.state()
	got := map[string]int{"images": len(images), "layers": len(layers), "containers": len(containers), "disks": len(state.ImageFs), "pods": 0, "cgroups": 0, "scores": 0, "name": 0, "stops": 0}
	uids := map[string]bool{}
	for _, s := range sandboxes {
		uids[string(s.UID)] = s.Ready
		if s.Cgroup != "" {
			got["cgroups"]++
		}
	}
	got["pods"] = len(uids)
	for _, c := range containers {
		if c.OOMScoreAdj != nil {
			got["scores"]++
		}
	}
	if state.Name == "cri-o" {
		got["name"]++
	}
	r.Execute(wire.Order{ID: orders, Kind: wire.StopContainer, Target: "c-0", Deadline: wire.Instant{Time: time.Now().Add(time.Minute)}})
	if h.await(t, "the answer", func(m *wire.FromAgent) bool { return m.Done != nil && m.Done.ID == orders }).Done.Error == "" {
		got["stops"]++
	}
	return got
}

// lines is a slog.Handler that keeps the lines of info and above.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *lines) WithGroup(string) slog.Handler                    { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
	return nil
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}
