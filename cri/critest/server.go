// Package critest is a container runtime for tests: it answers over the CRI what a test gives it,
// with the faults that a real runtime shows on a bad day.
package critest

import (
	"context"
	"net"
	"path"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Fault is what a method does in place of its answer.
type Fault string

// The faults of a method.
const (
	Fails         Fault = "fails"
	Hangs         Fault = "hangs" // until the caller gives up
	Unimplemented Fault = "is unimplemented"
	Garbage       Fault = "answers garbage" // the message of another method
	OneInTen      Fault = "answers one object in ten"
)

// Faults are all of them.
var Faults = []Fault{Fails, Hangs, Unimplemented, Garbage, OneInTen}

// Every stands for all methods in Server.Faults.
const Every = "*"

// Server is a runtime. What is nil is not implemented. Change guards its fields while it serves.
type Server struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	RuntimeName, RuntimeVersion string
	// Events has one container event for each value.
	Events chan struct{}

	mu         sync.Mutex
	Sandboxes  []*cri.PodSandbox
	Containers []*cri.Container
	Images     []*cri.Image
	Stats      func(id string) (*cri.ContainerStats, error)
	AllStats   bool // ListContainerStats is implemented
	Verbose    func(id string) map[string]string
	Disks      *cri.ImageFsInfoResponse
	Faults     map[string]Fault // by method
	Removed    []string
	Stopped    []string
	asked      map[string]int
}

// Change changes the server.
func (f *Server) Change(change func(*Server)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// Count is how often a method was called.
func (f *Server) Count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[method]
}

// Serve serves at a listener until stop, which returns when all calls have ended.
func (f *Server) Serve(at net.Listener) (stop func()) {
	server := grpc.NewServer(grpc.UnaryInterceptor(f.intercept))
	cri.RegisterRuntimeServiceServer(server, f)
	cri.RegisterImageServiceServer(server, f)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(at) })
	return func() {
		server.Stop()
		serving.Wait()
	}
}

// intercept counts a call and does what its fault says.
func (f *Server) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := path.Base(info.FullMethod)
	f.mu.Lock()
	if f.asked == nil {
		f.asked = map[string]int{}
	}
	f.asked[method]++
	fault, set := f.Faults[method]
	if !set {
		fault = f.Faults[Every]
	}
	f.mu.Unlock()
	switch fault {
	case Fails:
		return nil, status.Error(codes.Unknown, "layer not known")
	case Hangs:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case Unimplemented:
		return nil, status.Errorf(codes.Unimplemented, "unknown service %s", path.Dir(info.FullMethod)[1:])
	case Garbage:
		return &cri.VersionResponse{Version: "garbage", RuntimeName: "garbage", RuntimeVersion: "garbage"}, nil
	case OneInTen:
		if one, is := request.(interface{ GetContainerId() string }); is && !isTenth(one.GetContainerId()) {
			return nil, status.Error(codes.Unknown, "layer not known")
		}
		if one, is := request.(interface{ GetPodSandboxId() string }); is && !isTenth(one.GetPodSandboxId()) {
			return nil, status.Error(codes.Unknown, "layer not known")
		}
		answer, err := handle(ctx, request)
		return thin(answer), err
	}
	return handle(ctx, request)
}

func isTenth(id string) bool { return strings.HasSuffix(id, "0") }

// thin leaves one object in ten of a list.
func thin(answer any) any {
	switch a := answer.(type) {
	case *cri.ListPodSandboxResponse:
		return &cri.ListPodSandboxResponse{Items: tenth(a.Items, (*cri.PodSandbox).GetId)}
	case *cri.ListContainersResponse:
		return &cri.ListContainersResponse{Containers: tenth(a.Containers, (*cri.Container).GetId)}
	case *cri.ListImagesResponse:
		return &cri.ListImagesResponse{Images: tenth(a.Images, (*cri.Image).GetId)}
	case *cri.ListContainerStatsResponse:
		return &cri.ListContainerStatsResponse{Stats: tenth(a.Stats, func(s *cri.ContainerStats) string { return s.GetAttributes().GetId() })}
	}
	return answer
}

func tenth[T any](all []T, id func(T) string) (kept []T) {
	for _, one := range all {
		if isTenth(id(one)) {
			kept = append(kept, one)
		}
	}
	return kept
}

// The methods of the CRI.

func (f *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: f.RuntimeName, RuntimeVersion: f.RuntimeVersion}, nil
}

func (f *Server) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	if f.Verbose == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	return &cri.StatusResponse{}, nil
}

func (f *Server) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListPodSandboxResponse{Items: f.Sandboxes}, nil
}

func (f *Server) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListContainersResponse{Containers: f.Containers}, nil
}

func (f *Server) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.ListImagesResponse{Images: f.Images}, nil
}

func (f *Server) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Verbose == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	for _, s := range f.Sandboxes {
		if s.GetId() == r.PodSandboxId {
			return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{Id: s.Id, State: s.State}, Info: f.Verbose(s.Id)}, nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (f *Server) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.Containers {
		if c.GetId() != r.ContainerId {
			continue
		}
		answer := &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{Id: c.Id, State: c.State}}
		if f.Verbose != nil {
			answer.Info = f.Verbose(c.Id)
		}
		return answer, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (f *Server) ContainerStats(_ context.Context, r *cri.ContainerStatsRequest) (*cri.ContainerStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Stats == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	s, err := f.Stats(r.ContainerId)
	return &cri.ContainerStatsResponse{Stats: s}, err
}

func (f *Server) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.AllStats {
		return nil, status.Error(codes.Unimplemented, "")
	}
	answer := &cri.ListContainerStatsResponse{}
	for _, c := range f.Containers {
		if s, err := f.Stats(c.GetId()); err == nil {
			answer.Stats = append(answer.Stats, s)
		}
	}
	return answer, nil
}

func (f *Server) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Disks == nil {
		return nil, status.Error(codes.Unimplemented, "")
	}
	return f.Disks, nil
}

func (f *Server) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	f.Change(func(f *Server) { f.Stopped = append(f.Stopped, r.ContainerId) })
	return &cri.StopContainerResponse{}, nil
}

func (f *Server) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	f.Change(func(f *Server) { f.Removed = append(f.Removed, r.ContainerId) })
	return &cri.RemoveContainerResponse{}, nil
}

func (f *Server) RemoveImage(_ context.Context, r *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	f.Change(func(f *Server) { f.Removed = append(f.Removed, r.Image.Image) })
	return &cri.RemoveImageResponse{}, nil
}

func (f *Server) GetContainerEvents(_ *cri.GetEventsRequest, stream grpc.ServerStreamingServer[cri.ContainerEventResponse]) error {
	if f.Events == nil {
		return status.Error(codes.Unimplemented, "")
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-f.Events:
			if err := stream.Send(&cri.ContainerEventResponse{}); err != nil {
				return err
			}
		}
	}
}
