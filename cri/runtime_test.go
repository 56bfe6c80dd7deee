package cri

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/critest"
	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

func container(id string, state cri.ContainerState) *cri.Container {
	return &cri.Container{Id: id, PodSandboxId: "s", Metadata: &cri.ContainerMetadata{Name: id}, ImageRef: "image", State: state}
}

func TestFieldsThatARuntimeLeavesOutAreUnknownAndNeverMissedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{
			RuntimeName: "old", RuntimeVersion: "1",
			Sandboxes:  []*cri.PodSandbox{nil, {}, {Id: "s"}},
			Containers: []*cri.Container{nil, {}, {Id: "c"}},
			Images:     []*cri.Image{nil, {}, {Id: "i"}},
			Stats: func(id string) (*cri.ContainerStats, error) {
				return &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: id}, WritableLayer: &cri.FilesystemUsage{}}, nil
			},
			Disks: &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{nil, {}, {FsId: &cri.FilesystemIdentifier{Mountpoint: "/images"}}}},
		}
		_, h := start(t, f)
		h.await(t, "all to be listed", func(m *wire.FromAgent) bool { return m.Listed })
		h.await(t, "a sandbox", func(m *wire.FromAgent) bool { return m.Sandbox != nil && m.Sandbox.ID == "s" && m.Sandbox.UID == "" })
		h.await(t, "a container", func(m *wire.FromAgent) bool {
			return m.Container != nil && m.Container.ID == "c" && m.Container.State == inventory.ContainerCreated
		})
		h.await(t, "an image", func(m *wire.FromAgent) bool { return m.Image != nil && m.Image.ID == "i" })
		layer := h.await(t, "a layer", func(m *wire.FromAgent) bool { return len(m.Layers) == 1 }).Layers[0]
		if layer.Container != "c" || layer.Bytes != nil || layer.Inodes != nil || !layer.At.IsZero() {
			t.Errorf("layer %+v, want all of it unknown", layer)
		}
		await(t, "the filesystem", func() bool {
			disks := h.state().ImageFs
			return len(disks) == 1 && disks[0].Mountpoint == "/images" && disks[0].Bytes == nil
		})
	})
}

func TestWhatIsNotImplementedIsAskedOnceAndDoneWithout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{RuntimeName: "old", RuntimeVersion: "1", Containers: []*cri.Container{container("c", cri.ContainerState_CONTAINER_RUNNING)}, Stats: func(id string) (*cri.ContainerStats, error) {
			return &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: id}, WritableLayer: &cri.FilesystemUsage{UsedBytes: &cri.UInt64Value{Value: 7}}}, nil
		}}
		_, h := start(t, f)
		await(t, "surveys", func() bool { return f.Count("ContainerStats") > 3 && !h.state().Surveyed.IsZero() })
		if layer := h.await(t, "a layer", func(m *wire.FromAgent) bool { return len(m.Layers) == 1 }).Layers[0]; *layer.Bytes != 7 {
			t.Errorf("layer %+v, want 7 bytes", layer)
		}
		want := []string{"ImageFsInfo", "ListContainerStats", "ListPodSandboxStats", "Status"}
		if missing := h.state().Missing; !slices.Equal(missing, want) {
			t.Errorf("missing %v, want %v", missing, want)
		}
		for _, method := range want {
			if n := f.Count(method); n != 1 {
				t.Errorf("%s was asked %d times, want once", method, n)
			}
		}
	})
}

func TestContainerWhoseStatsFailSpoilsNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{RuntimeName: "old", RuntimeVersion: "1", Containers: []*cri.Container{container("runs", cri.ContainerState_CONTAINER_RUNNING), container("exited", cri.ContainerState_CONTAINER_EXITED), container("silent", cri.ContainerState_CONTAINER_EXITED)}}
		f.Stats = func(id string) (*cri.ContainerStats, error) {
			switch id {
			case "exited": // containerd
				return nil, errors.New("unexpected metrics response: []")
			case "silent":
				return nil, nil
			}
			return &cri.ContainerStats{Attributes: &cri.ContainerAttributes{Id: id}, WritableLayer: &cri.FilesystemUsage{}}, nil
		}
		_, h := start(t, f)
		h.await(t, "the layer of the other", func(m *wire.FromAgent) bool { return len(m.Layers) == 1 && m.Layers[0].Container == "runs" })
		await(t, "the survey to count", func() bool { return !h.state().Surveyed.IsZero() })
		if stands := h.state(); !stands.Connected || stands.Calls["ContainerStats"].Errors[codes.Unknown.String()] == 0 {
			t.Errorf("stands %+v, want it connected and the error counted", stands)
		}
	})
}

func TestRuntimeThatHangsIsDisconnectedAndBlocksNoOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{RuntimeName: "old", RuntimeVersion: "1", Containers: []*cri.Container{container("c", cri.ContainerState_CONTAINER_EXITED)}}
		r, h := start(t, f)
		await(t, "the runtime", func() bool { return h.state().Connected })
		f.Change(func(f *critest.Server) { f.Faults = map[string]critest.Fault{critest.Every: critest.Hangs} })
		began := time.Now()
		r.Execute(wire.Order{ID: 1, Kind: wire.RemoveContainer, Target: "c", Deadline: wire.Instant{Time: began.Add(200 * time.Millisecond)}})
		done := h.await(t, "the order to fail", func(m *wire.FromAgent) bool { return m.Done != nil }).Done
		if !strings.Contains(done.Error, codes.DeadlineExceeded.String()) {
			t.Errorf("done %+v, want its deadline to have passed", done)
		}
		await(t, "the runtime to count as away", func() bool { stands := h.state(); return !stands.Connected && stands.Error != "" })
		f.Change(func(f *critest.Server) { f.Faults = nil })
		await(t, "the runtime to be found again", func() bool { return h.state().Connected })
	})
}

func TestRuntimeThatIsStartedAgainIsFoundAndWhatHasGoneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := make(socket)
		f := &critest.Server{RuntimeName: "old", RuntimeVersion: "1", Containers: []*cri.Container{container("c", cri.ContainerState_CONTAINER_RUNNING)}}
		stop := serve(f, s)
		r, h := listen(t, s, slog.DiscardHandler)
		await(t, "the runtime", func() bool { return h.state().Connected })
		stop()
		await(t, "its end", func() bool { return !h.state().Connected })
		r.Execute(wire.Order{ID: 1, Kind: wire.StopSandbox, Target: "s", Deadline: wire.Instant{Time: time.Now().Add(time.Hour)}})
		if done := h.await(t, "an answer", func(m *wire.FromAgent) bool { return m.Done != nil }).Done; done.Error != wire.ErrAway.Error() || !done.Away {
			t.Errorf("done %+v, want %v", done, wire.ErrAway)
		}
		again := &critest.Server{RuntimeName: "new", RuntimeVersion: "2"}
		t.Cleanup(serve(again, s))
		h.await(t, "the container to be dropped", func(m *wire.FromAgent) bool { return m.Removed == "c" })
		await(t, "the new one", func() bool { stands := h.state(); return stands.Connected && stands.Name == "new" })
	})
}

func TestChangesAreListedBeforeEverySubscriberIsNotified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{RuntimeName: "containerd", RuntimeVersion: "v2.4.2", Events: make(chan struct{})}
		_, h := start(t, f)
		await(t, "the runtime", func() bool { return h.state().Connected })
		f.Change(func(f *critest.Server) { f.Sandboxes = []*cri.PodSandbox{{Id: "new"}} })
		f.Events <- struct{}{}
		h.await(t, "the sandbox", func(m *wire.FromAgent) bool { return m.Sandbox != nil && m.Sandbox.ID == "new" })
		for version, want := range map[string]bool{"containerd v2.0.0": true, "containerd 2.4.2+unknown": true, "containerd 1.6.20~ds1": false, "containerd v1.7.1": false, "cri-o 1.34.0": false, "containerd ": false} {
			name, version, _ := strings.Cut(version, " ")
			if broadcasts(name, version) != want {
				t.Errorf("%s %s: want %v", name, version, want)
			}
		}
	})
}

func TestRuntimeWithoutEventsIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{RuntimeName: "containerd", RuntimeVersion: "v2.4.2"}
		_, h := start(t, f)
		await(t, "events to be asked for", func() bool { return slices.Contains(h.state().Missing, eventMethod) })
		f.Change(func(f *critest.Server) { f.Sandboxes = []*cri.PodSandbox{{Id: "new"}} })
		h.await(t, "the sandbox", func(m *wire.FromAgent) bool { return m.Sandbox != nil && m.Sandbox.ID == "new" })
		if n := f.Count(eventMethod); n > 1 || !h.state().Connected {
			t.Errorf("events were asked for %d times, connected %v", n, h.state().Connected)
		}
	})
}

func TestWhatRunsAndWhatIsInUseIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &critest.Server{
			RuntimeName: "old", RuntimeVersion: "1",
			Containers: []*cri.Container{container("runs", cri.ContainerState_CONTAINER_RUNNING), container("exited", cri.ContainerState_CONTAINER_EXITED)},
			Images:     []*cri.Image{{Id: "sha", RepoTags: []string{"image"}}, {Id: "unused"}, {Id: "kept", Pinned: true}},
		}
		r, h := start(t, f)
		await(t, "the runtime", func() bool { return h.state().Connected })
		for i, c := range []struct {
			kind   wire.OrderKind
			target string
			want   string // part of the error
		}{
			{wire.RemoveContainer, "runs", "it is running"},
			{wire.RemoveContainer, "exited", ""},
			{wire.RemoveContainer, "gone", ""},
			{wire.RemoveImage, "sha", "container runs uses it"},
			{wire.RemoveImage, "kept", "pinned"},
			{wire.RemoveImage, "unused", ""},
			{wire.StopSandbox, "s", "Unimplemented"},
			{"dance", "s", `"dance" is not an order`},
		} {
			id := uint64(i + 1)
			r.Execute(wire.Order{ID: id, Kind: c.kind, Target: c.target, Deadline: wire.Instant{Time: time.Now().Add(time.Minute)}})
			done := h.await(t, "an answer", func(m *wire.FromAgent) bool { return m.Done != nil && m.Done.ID == id }).Done
			if c.want == "" && done.Error != "" || !strings.Contains(done.Error, c.want) {
				t.Errorf("%s %s: %q, want %q", c.kind, c.target, done.Error, c.want)
			}
		}
		await(t, "all orders to be over", r.Idle)
		f.Change(func(f *critest.Server) {
			if want := []string{"exited", "unused"}; !slices.Equal(f.Removed, want) {
				t.Errorf("removed %v, want %v", f.Removed, want)
			}
		})
	})
}

func TestCgroupOfAContainerIsReadFromItsSpec(t *testing.T) {
	for spec, want := range map[string][2]string{
		"":                             {"", ""},
		"/kubepods/burstable/podx/abc": {"/kubepods/burstable/podx/", "abc"},
		"kubepods-burstable-podx.slice:cri-containerd:abc": {"kubepods-burstable-podx.slice", "cri-containerd-abc.scope"},
		"kubepods.slice:crio:abc":                          {"kubepods.slice", "crio-abc.scope"},
	} {
		if parent, child := splitCgroup(spec); parent != want[0] || child != want[1] {
			t.Errorf("%s: %s and %s, want %v", spec, parent, child, want)
		}
	}
}
