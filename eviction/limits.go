package eviction

import (
	"fmt"
	"iter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/podspec"
)

// Limit is a local-storage limit of a pod's own, and what counts against it, in
// bytes.
type Limit struct {
	Signal Signal
	// Of names the volume or the container; empty for the pod's own.
	Of    string
	Held  int64
	Limit resource.Quantity
}

// Over is the kubelet's test: strictly more than the limit.
func (l *Limit) Over() bool { return bytes(l.Held).Cmp(l.Limit) > 0 }

// Limits are those of the pod, in the order in which they are looked at: of its
// emptyDirs, of its ephemeral storage, of its containers. A pod without statistics
// shows none.
func Limits(c Candidate, l Layout) iter.Seq[Limit] {
	return func(yield func(Limit) bool) {
		if c.Usage == nil {
			return
		}
		for i := range min(len(c.Usage.Volumes), len(c.Pod.Volumes)) {
			v := &c.Pod.Volumes[i]
			if v.SizeLimit != nil && !yield(Limit{EmptyDirLimit, v.Name, c.Usage.Volumes[i].Used.Or(0), *v.SizeLimit}) {
				return
			}
		}
		held := c.part(everything, false, ephemeral, false) + c.Usage.Files.Used.Or(0)
		if limit := c.Pod.StorageLimit; limit != nil && !yield(Limit{PodEphemeralStorageLimit, "", held, *limit}) {
			return
		}
		for i := range min(len(c.Usage.Containers), len(c.Pod.Containers)) {
			container, used := &c.Pod.Containers[i], &c.Usage.Containers[i]
			held := used.Logs.Or(0)
			if l == SharedFs {
				held += used.Rootfs.Or(0)
			}
			if limit := container.StorageLimit; !limit.IsZero() && !yield(Limit{ContainerEphemeralStorageLimit, container.Name, held, limit}) {
				return
			}
		}
	}
}

// exceededLimit finds the first local-storage limit that the pod is over, and its
// message.
func exceededLimit(c Candidate, l Layout) (Signal, string, bool) {
	for limit := range Limits(c, l) {
		if limit.Over() {
			return limit.Signal, limit.message(), true
		}
	}
	return 0, "", false
}

func (l *Limit) message() string {
	switch l.Signal {
	case EmptyDirLimit:
		return fmt.Sprintf(podspec.EmptyDirMessage, l.Of, written(l.Limit))
	case PodEphemeralStorageLimit:
		return fmt.Sprintf(podspec.PodLimitMessage, written(l.Limit))
	}
	return fmt.Sprintf(podspec.ContainerLimitMessage, l.Of, written(l.Limit))
}
