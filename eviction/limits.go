package eviction

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// exceededLimit finds the first local-storage limit the pod is over: an
// emptyDir's size, the pod's ephemeral storage, a container's. A pod without
// statistics is over none.
func exceededLimit(c Candidate, l Layout) (Signal, string, bool) {
	if c.Usage == nil {
		return 0, "", false
	}
	for i := range min(len(c.Usage.Volumes), len(c.Pod.Volumes)) {
		v := &c.Pod.Volumes[i]
		if v.SizeLimit != nil && over(c.Usage.Volumes[i].Used.Or(0), *v.SizeLimit) {
			return EmptyDirLimit, fmt.Sprintf(emptyDirMessage, v.Name, written(*v.SizeLimit)), true
		}
	}
	held := c.part(everything, false, ephemeral) + c.Usage.Files.Used.Or(0)
	if limit := c.Pod.StorageLimit; limit != nil && over(held, *limit) {
		return PodEphemeralStorageLimit, fmt.Sprintf(podLimitMessage, written(*limit)), true
	}
	for i := range min(len(c.Usage.Containers), len(c.Pod.Containers)) {
		container, used := &c.Pod.Containers[i], &c.Usage.Containers[i]
		held := used.Logs.Or(0)
		if l == SharedFs {
			held += used.Rootfs.Or(0)
		}
		if limit := container.StorageLimit; !limit.IsZero() && over(held, limit) {
			return ContainerEphemeralStorageLimit, fmt.Sprintf(containerLimitMessage, container.Name, written(limit)), true
		}
	}
	return 0, "", false
}

// over is the kubelet's test: strictly more than the limit.
func over(used int64, limit resource.Quantity) bool { return bytes(used).Cmp(limit) > 0 }
