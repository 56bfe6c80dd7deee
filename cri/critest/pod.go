package critest

import (
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod with one container, labelled as the kubelet does. The ids of its sandbox, container and image are
// s-NUMBER, c-NUMBER and i-NUMBER.
type Pod struct {
	Number               int
	UID, Namespace, Name string
	Cgroup               string // of the pod, as the kubelet names it to the runtime
	OOMScoreAdj          int64
	LayerBytes           uint64 // of the container's writable layer
}

// New makes a server that implements all methods which evictd calls, and runs pods. Disk is where it keeps images.
func New(name, version, disk string, pods ...Pod) *Server {
	f := &Server{
		RuntimeName: name, RuntimeVersion: version, AllStats: true,
		Disks: &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: &cri.FilesystemIdentifier{Mountpoint: disk}}}},
	}
	of := map[string]Pod{}
	for _, p := range pods {
		sandbox, container, image := fmt.Sprintf("s-%d", p.Number), fmt.Sprintf("c-%d", p.Number), fmt.Sprintf("i-%d", p.Number)
		of[sandbox], of[container] = p, p
		labels := map[string]string{"io.kubernetes.pod.uid": p.UID, "io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.name": p.Name}
		f.Sandboxes = append(f.Sandboxes, &cri.PodSandbox{
			Id: sandbox, Metadata: &cri.PodSandboxMetadata{Uid: p.UID, Namespace: p.Namespace, Name: p.Name},
			State: cri.PodSandboxState_SANDBOX_READY, CreatedAt: 1, Labels: labels, Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		})
		f.Containers = append(f.Containers, &cri.Container{
			Id: container, PodSandboxId: sandbox, Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: image}, ImageRef: image,
			State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: 1, Labels: labels,
		})
		f.Images = append(f.Images, &cri.Image{Id: image, RepoTags: []string{"registry/" + image + ":1"}, Size: 1 << 20})
	}
	f.Verbose = func(id string) map[string]string {
		p, known := of[id]
		if !known {
			return nil
		}
		return map[string]string{"info": fmt.Sprintf(`{"config": {"linux": {"cgroup_parent": %q, "resources": {"oom_score_adj": %d}}}, "runtimeSpec": {"linux": {"cgroupsPath": %q}}}`,
			p.Cgroup, p.OOMScoreAdj, p.Cgroup+"/c")}
	}
	f.Stats = func(id string) (*cri.ContainerStats, error) {
		return &cri.ContainerStats{
			Attributes:    &cri.ContainerAttributes{Id: id},
			WritableLayer: &cri.FilesystemUsage{Timestamp: 1, UsedBytes: &cri.UInt64Value{Value: of[id].LayerBytes}},
		}, nil
	}
	return f
}
