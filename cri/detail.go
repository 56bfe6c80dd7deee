package cri

import (
	"context"
	"encoding/json"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
)

// podAnnotations are passed on. By them the kubelet marks the pods that it does not have from the API server. It
// never runs a mirror pod.
var podAnnotations = []string{"kubernetes.io/config.source", "kubernetes.io/config.hash"}

// graceAnnotation is the kubelet's, on every container: the pod's
// terminationGracePeriodSeconds.
const graceAnnotation = "io.kubernetes.pod.terminationGracePeriod"

// detail is what only the status of one sandbox or container has.
type detail struct {
	cgroup string
	image  string // of a sandbox, by any of its names
	// Of a container; state is the state when it was inspected.
	state   cri.ContainerState
	status  *cri.ContainerStatus
	oom     *int64
	memory  int64
	verbose bool   // the verbose status was read
	parent  string // cgroup above the container's

	// Of an object that could not be read: the error, when it is tried again, and how often it was.
	err   error
	retry time.Time
	tries int
}

// info is the common part of the verbose statuses of containerd and CRI-O. It is not
// part of the CRI: a missing field is unknown.
type info struct {
	Image  string `json:"image"`
	Config struct {
		Linux struct {
			CgroupParent string `json:"cgroup_parent"`
			Resources    struct {
				OOMScoreAdj *int64 `json:"oom_score_adj"`
			} `json:"resources"`
		} `json:"linux"`
	} `json:"config"`
	RuntimeSpec struct {
		Process struct {
			OOMScoreAdj *int64 `json:"oomScoreAdj"`
		} `json:"process"`
		Linux struct {
			CgroupsPath string `json:"cgroupsPath"`
			Resources   struct {
				Memory struct {
					Limit int64 `json:"limit"`
				} `json:"memory"`
			} `json:"resources"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
}

func parseInfo(verbose map[string]string) (i info) {
	_ = json.Unmarshal([]byte(verbose["info"]), &i) // fields that do not parse are unknown
	return i
}

// sandboxImage is the image of sandboxes in containerd's verbose status; "" where it is
// pinned or unknown.
func sandboxImage(config string) string {
	var c struct {
		SandboxImage string `json:"sandboxImage"`
	}
	_ = json.Unmarshal([]byte(config), &c) // other runtimes have other fields
	return c.SandboxImage
}

func inspectSandbox(ctx context.Context, c *client, id string) (detail, error) {
	answer, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return detail{}, err
	}
	i := parseInfo(answer.GetInfo())
	d := detail{cgroup: i.Config.Linux.CgroupParent, image: i.Image}
	if d.cgroup == "" {
		d.cgroup, _ = splitCgroup(i.RuntimeSpec.Linux.CgroupsPath)
	}
	return d, nil
}

// inspectContainer reads the verbose status once, and the short one after that.
func inspectContainer(ctx context.Context, c *client, p *cri.Container, was detail) (detail, error) {
	answer, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: p.Id, Verbose: !was.verbose})
	if err != nil {
		return detail{}, err
	}
	d := was
	d.err, d.retry, d.tries = nil, time.Time{}, 0
	d.state, d.status = p.State, answer.GetStatus()
	if !was.verbose {
		i := parseInfo(answer.GetInfo())
		d.verbose = true
		d.parent, d.cgroup = splitCgroup(i.RuntimeSpec.Linux.CgroupsPath)
		// The configured score: the runtime may not have been permitted to set it.
		if d.oom = i.Config.Linux.Resources.OOMScoreAdj; d.oom == nil {
			d.oom = i.RuntimeSpec.Process.OOMScoreAdj
		}
		d.memory = i.RuntimeSpec.Linux.Resources.Memory.Limit
	}
	if r := d.status.GetResources().GetLinux(); r != nil {
		d.memory = r.MemoryLimitInBytes
		if d.oom == nil {
			d.oom = &r.OomScoreAdj
		}
	}
	return d, nil
}

// splitCgroup splits the cgroup path of a container's OCI spec: a path, or
// slice:prefix:name for the systemd scope prefix-name.scope.
func splitCgroup(cgroup string) (parent, child string) {
	if cgroup == "" {
		return "", ""
	}
	if parts := strings.Split(cgroup, ":"); len(parts) == 3 {
		return parts[0], parts[1] + "-" + parts[2] + ".scope"
	}
	return path.Split(path.Clean(cgroup))
}

func sandboxOf(s *cri.PodSandbox, d detail, images map[string]string) inventory.Sandbox {
	meta := s.GetMetadata()
	sandbox := inventory.Sandbox{
		ID: s.Id, UID: types.UID(meta.GetUid()), Namespace: meta.GetNamespace(), Name: meta.GetName(), Attempt: meta.GetAttempt(),
		Ready: s.State == cri.PodSandboxState_SANDBOX_READY, Created: instant(s.CreatedAt),
		Cgroup: strings.TrimSuffix(d.cgroup, "/"), Image: images[d.image],
	}
	for _, key := range podAnnotations {
		if value, set := s.Annotations[key]; set {
			if sandbox.Annotations == nil {
				sandbox.Annotations = map[string]string{}
			}
			sandbox.Annotations[key] = value
		}
	}
	return sandbox
}

// Labels that the kubelet gives every container.
const (
	podName      = "io.kubernetes.pod.name"
	podNamespace = "io.kubernetes.pod.namespace"
	podUID       = "io.kubernetes.pod.uid"
)

// sandboxOfContainer makes the sandbox of a container that runs, by the container's labels: the runtime does
// not list the sandbox; ok is false without labels. The kubelet names a static pod by a hash, in place of the uid.
func sandboxOfContainer(p *cri.Container, d detail) (s inventory.Sandbox, ok bool) {
	s = inventory.Sandbox{
		ID: p.PodSandboxId, UID: types.UID(p.Labels[podUID]), Namespace: p.Labels[podNamespace], Name: p.Labels[podName],
		Ready: true, Created: instant(p.CreatedAt), Cgroup: strings.TrimSuffix(d.parent, "/"),
	}
	if !strings.Contains(string(s.UID), "-") {
		s.Annotations = map[string]string{podAnnotations[0]: "file", podAnnotations[1]: string(s.UID)}
	}
	return s, s.ID != "" && s.UID != "" && s.Name != ""
}

var containerStates = map[cri.ContainerState]string{
	cri.ContainerState_CONTAINER_CREATED: inventory.ContainerCreated,
	cri.ContainerState_CONTAINER_RUNNING: inventory.ContainerRunning,
	cri.ContainerState_CONTAINER_EXITED:  inventory.ContainerExited,
}

func containerOf(p *cri.Container, d detail, images map[string]string) inventory.Container {
	container := inventory.Container{
		ID: p.Id, Sandbox: p.PodSandboxId, Name: p.GetMetadata().GetName(), Attempt: p.GetMetadata().GetAttempt(),
		State: inventory.ContainerUnknown, Created: instant(p.CreatedAt),
		Finished: instant(d.status.GetFinishedAt()), LogPath: d.status.GetLogPath(), Cgroup: d.cgroup,
		OOMScoreAdj: d.oom, MemoryLimit: max(0, d.memory),
	}
	if state, known := containerStates[p.State]; known {
		container.State = state
	}
	if seconds, err := strconv.ParseInt(p.Annotations[graceAnnotation], 10, 64); err == nil {
		container.GraceSeconds = &seconds
	}
	// The name in the pod, the name it was resolved to, the id.
	container.ImageName = p.GetImage().GetUserSpecifiedImage()
	if container.ImageName == "" {
		container.ImageName = d.status.GetImage().GetImage()
	}
	if container.ImageName == "" {
		container.ImageName = p.GetImage().GetImage()
	}
	container.Image = resolve(images, p.ImageId, p.ImageRef, p.GetImage().GetImage(), d.status.GetImageId(), d.status.GetImageRef())
	for _, m := range d.status.GetMounts() {
		if volume := m.GetImage().GetImage(); volume != "" {
			container.ImageVolumes = append(container.ImageVolumes, resolve(images, volume))
		}
	}
	return container
}

// resolve returns the id of an image by the first of its names that is known, else the
// first name that is not empty.
func resolve(images map[string]string, names ...string) (first string) {
	for _, name := range names {
		if id := images[name]; id != "" {
			return id
		}
		if first == "" {
			first = name
		}
	}
	return first
}

// imageNames maps every name of an image to its id.
func imageNames(images []*cri.Image) map[string]string {
	names := map[string]string{}
	for _, i := range images {
		for _, name := range append(append([]string{i.GetId()}, i.GetRepoTags()...), i.GetRepoDigests()...) {
			names[name] = i.GetId()
		}
	}
	delete(names, "")
	return names
}

func imageOf(i *cri.Image, ofSandboxes bool) inventory.Image {
	return inventory.Image{ID: i.Id, Tags: i.RepoTags, Digests: i.RepoDigests, Bytes: bytesOf(i.Size), Pinned: i.Pinned || ofSandboxes}
}

// bytesOf is a size of the CRI; a size that no disk can hold becomes the largest int64.
func bytesOf(n uint64) int64 { return int64(min(n, math.MaxInt64)) }
