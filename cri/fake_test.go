package cri

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
)

// fake is a runtime with the faults that a real one shows on a bad day. What is
// not set is not implemented.
type fake struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	name, version string

	mu         sync.Mutex
	sandboxes  []*cri.PodSandbox
	containers []*cri.Container
	images     []*cri.Image
	hung       chan struct{} // calls wait until it is closed; nil: they do not
	stats      func(id string) (*cri.ContainerStats, error)
	disks      *cri.ImageFsInfoResponse
	events     chan struct{} // nil: not implemented
	asked      map[string]int
	removed    []string
}

// intercept counts calls and hangs.
func (f *fake) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[filepath.Base(info.FullMethod)]++
	hung := f.hung
	f.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	return handle(ctx, request)
}

func (f *fake) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[method]
}

func (f *fake) change(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fake) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: f.name, RuntimeVersion: f.version}, nil
}

func (f *fake) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListPodSandboxResponse{Items: f.sandboxes}, nil
}

func (f *fake) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListContainersResponse{Containers: f.containers}, nil
}

func (f *fake) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListImagesResponse{Images: f.images}, nil
}

func (f *fake) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c != nil && c.Id == r.ContainerId {
			return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{Id: c.Id, State: c.State}}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *fake) ContainerStats(_ context.Context, r *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stats == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	s, err := f.stats(r.ContainerId)
	return &cri.ContainerStatsResponse{Stats: s}, err
}

func (f *fake) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.disks == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	return f.disks, nil
}

func (f *fake) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	f.change(func(f *fake) { f.removed = append(f.removed, r.ContainerId) })
	return &cri.RemoveContainerResponse{}, nil
}

func (f *fake) RemoveImage(_ context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	f.change(func(f *fake) { f.removed = append(f.removed, r.Image.Image) })
	return &cri.RemoveImageResponse{}, nil
}

func (f *fake) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	if f.events == nil {
		return status.Error(codes.Unimplemented, "")
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-f.events:
			if err := stream.Send(&cri.ContainerEventResponse{}); err != nil {
				return err
			}
		}
	}
}

// socket connects runtimes and those that dial them within a bubble.
type socket chan net.Conn

func (s socket) dial(context.Context) (net.Conn, string, error) {
	near, far := net.Pipe()
	select {
	case s <- far:
		return near, "pipe", nil
	default:
		return nil, "pipe", syscall.ECONNREFUSED
	}
}

// listener accepts from a socket until it is closed.
type listener struct {
	socket
	closed chan struct{}
	close  func()
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.socket:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.close(); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serve runs the fake until stop.
func (f *fake) serve(s socket) (stop func()) {
	closed := make(chan struct{})
	server := grpc.NewServer(grpc.UnaryInterceptor(f.intercept))
	cri.RegisterRuntimeServiceServer(server, f)
	cri.RegisterImageServiceServer(server, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(&listener{s, closed, sync.OnceFunc(func() { close(closed) })}) })
	return func() {
		server.Stop()
		serving.Wait()
	}
}

// received are the messages that a Runtime has sent.
type received struct {
	mu       sync.Mutex
	messages []wire.FromAgent
}

func (h *received) receive(m wire.FromAgent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, m)
}

// last is the last message that holds.
func (h *received) last(holds func(*wire.FromAgent) bool) *wire.FromAgent {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.messages) - 1; i >= 0; i-- {
		if holds(&h.messages[i]) {
			return &h.messages[i]
		}
	}
	return nil
}

// state is the last state of the runtime.
func (h *received) state() inventory.Runtime {
	if m := h.last(func(m *wire.FromAgent) bool { return m.Runtime != nil }); m != nil {
		return *m.Runtime
	}
	return inventory.Runtime{}
}

func (h *received) await(t *testing.T, what string, holds func(*wire.FromAgent) bool) *wire.FromAgent {
	t.Helper()
	var m *wire.FromAgent
	await(t, what, func() bool { m = h.last(holds); return m != nil })
	return m
}

var await = wait.Until

// listen runs a Runtime on a socket until the test ends.
func listen(t *testing.T, s socket) (*Runtime, *received) {
	t.Helper()
	h := &received{}
	r := New(Config{StatsInterval: 50 * time.Millisecond, Dial: s.dial}, h.receive, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r, h
}

// start runs a fake and a Runtime.
func start(t *testing.T, f *fake) (*Runtime, *received) {
	t.Helper()
	s := make(socket)
	t.Cleanup(f.serve(s))
	return listen(t, s)
}
