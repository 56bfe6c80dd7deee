package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/agent"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/nodestatus"
)

// sockets of container runtimes.
var sockets = []string{
	"/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/cri-dockerd.sock", "/var/run/cri-dockerd.sock",
	"/run/k3s/containerd/containerd.sock", "/run/k0s/containerd.sock", "/var/snap/microk8s/common/run/containerd.sock",
}

const (
	noRuntime  = "none"
	unixScheme = "unix:" // before the path of a socket
	noSocket   = "no socket of a container runtime found"
	// lookForRuntime is the interval at which a socket is looked for while there is none.
	lookForRuntime = 5 * time.Second
	// connectPatience is how long a runtime may take to accept a connection.
	connectPatience = time.Second
)

// RuntimeEndpoint is the setting --cri-endpoint: none, unix:PATH, or "" for the first of the
// usual sockets behind which a container runtime answers.
type RuntimeEndpoint string

// Check validates the setting.
func (e RuntimeEndpoint) Check() error {
	if e == "" || e == noRuntime || filepath.IsAbs(e.path()) {
		return nil
	}
	return fmt.Errorf("--cri-endpoint %q: expected unix:PATH with an absolute path, or none", string(e))
}

// path of the socket; "" for none and for the usual ones. The kubelet writes unix://PATH.
func (e RuntimeEndpoint) path() string {
	rest, is := strings.CutPrefix(string(e), unixScheme)
	if !is {
		return ""
	}
	if path, is := strings.CutPrefix(rest, "//"); is {
		return path
	}
	return rest
}

// Sockets are the paths of the sockets that may be the runtime's: that which is set, or those of the usual
// sockets that exist.
func (e RuntimeEndpoint) Sockets() (paths []string) {
	if e == noRuntime {
		return nil
	}
	if path := e.path(); path != "" {
		return []string{path}
	}
	var seen []os.FileInfo
	for _, path := range sockets {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Type() != os.ModeSocket || slices.ContainsFunc(seen, func(other os.FileInfo) bool { return os.SameFile(info, other) }) {
			continue
		}
		seen, paths = append(seen, info), append(paths, path)
	}
	return paths
}

// find returns the path of the first socket that exists, or "" if none does.
func (e RuntimeEndpoint) find() string {
	if paths := e.Sockets(); len(paths) > 0 {
		return paths[0]
	}
	return ""
}

// unanswered is the error of a runtime that has not answered yet.
func (e RuntimeEndpoint) unanswered() string {
	if path := e.find(); path != "" {
		return unixScheme + path + " has not answered yet"
	}
	return noSocket
}

// Connect is a wire.OpenRuntime for the agent, whose user cannot open the socket. After the last
// endpoint it tries the others in their order.
func (e RuntimeEndpoint) Connect(last string, next bool) (file *os.File, endpoint string, err error) {
	paths := e.Sockets()
	if len(paths) == 0 {
		return nil, "", errors.New(noSocket)
	}
	at := slices.Index(paths, strings.TrimPrefix(last, unixScheme))
	switch {
	case next && at >= 0:
		paths = slices.Concat(paths[at+1:], paths[:at+1])
	case at >= 0:
		paths = paths[at : at+1]
	case !next && last != "":
		return nil, "", fmt.Errorf("there is no socket at %s", last)
	}
	var refused []error
	for _, path := range paths {
		if file, err = dial(path); err == nil {
			return file, unixScheme + path, nil
		}
		refused = append(refused, err)
	}
	return nil, "", errors.Join(refused...)
}

func dial(path string) (*os.File, error) {
	conn, err := net.DialTimeout("unix", path, connectPatience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*net.UnixConn).File()
}

// await returns true once there is a socket, and false if ctx ends before.
func (e RuntimeEndpoint) await(ctx context.Context) bool {
	for e.find() == "" {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(lookForRuntime):
		}
	}
	return true
}

// running are the containers and sandboxes of a pod that run now, or the container of a name.
func (t *podTracker) running(uid types.UID, container string) (found agent.Running) {
	for _, p := range t.pods() {
		r := p.runtime.Load()
		if p.UID != uid || r == nil {
			continue
		}
		if container != "" {
			if c := r.Current(container); c != nil && c.State == inventory.ContainerRunning {
				found.Containers = append(found.Containers, c.ID)
			}
			continue
		}
		sidecars := map[string]bool{}
		for i := range p.manifest.Spec.InitContainers {
			if c := &p.manifest.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
				sidecars[c.Name] = true
				if current := r.Current(c.Name); current != nil && current.State == inventory.ContainerRunning {
					found.Sidecars = append(found.Sidecars, current.ID)
				}
			}
		}
		for _, c := range r.Containers {
			if c.State == inventory.ContainerRunning && !sidecars[c.Name] {
				found.Containers = append(found.Containers, c.ID)
			}
		}
		for _, s := range r.Sandboxes {
			if s.Ready {
				found.Sandboxes = append(found.Sandboxes, s.ID)
			}
		}
	}
	return found
}

// runtimeStatus is the container runtime in the status document.
func (d *Daemon) runtimeStatus() nodestatus.Runtime {
	i := d.cluster.agent.Runtime()
	if i == nil {
		return nodestatus.Runtime{Error: d.cluster.runtime.unanswered()}
	}
	s := nodestatus.Runtime{
		Endpoint: i.Endpoint, Name: i.Name, Version: i.Version, Connected: i.Connected, Since: nodestatus.Time{Time: i.Since}, Error: i.Error,
		Missing: i.Missing, Failing: i.Failing, ImageFs: filesystemsOf(i.ImageFs), ContainerFs: filesystemsOf(i.ContainerFs), Surveyed: nodestatus.Time{Time: i.Surveyed},
		Sandboxes: len(i.Sandboxes), Containers: len(i.Containers), Images: len(i.Images), Calls: map[string]nodestatus.RuntimeCalls{},
	}
	for method, call := range i.Calls {
		s.Calls[method] = nodestatus.RuntimeCalls(call)
	}
	for _, p := range d.tracker.pods() {
		if r := p.runtime.Load(); r != nil {
			s.Pods = append(s.Pods, nodestatus.RuntimePod{Pod: p.String(), UID: p.UID, Estimated: p.Estimated, Containers: containersOf(r)})
		}
	}
	return s
}

func filesystemsOf(all []inventory.Filesystem) (shown []nodestatus.RuntimeFilesystem) {
	for _, f := range all {
		shown = append(shown, nodestatus.RuntimeFilesystem{Mountpoint: f.Mountpoint, Used: bytesOf(f.Bytes), InodesUsed: countOf(f.Inodes), Time: nodestatus.Time{Time: f.At}})
	}
	return shown
}

func containersOf(r *pods.RuntimePod) (shown []nodestatus.RuntimeContainer) {
	for _, c := range r.Containers {
		shown = append(shown, nodestatus.RuntimeContainer{
			Name: c.Name, ID: c.ID, State: c.State, Image: c.ImageName, Log: c.LogPath,
			Layer: bytesOf(c.Layer.Bytes), LayerInodes: countOf(c.Layer.Inodes), LayerTime: nodestatus.Time{Time: c.Layer.At},
		})
	}
	return shown
}

func bytesOf(n *int64) string {
	if n == nil {
		return ""
	}
	return eviction.NodeFsAvailable.Quantity(*n)
}

func countOf(n *int64) string {
	if n == nil {
		return ""
	}
	return eviction.NodeFsInodesFree.Quantity(*n)
}
