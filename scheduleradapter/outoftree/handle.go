package outoftree

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/queue"
)

// handle is the fwk.Handle of a profile. Any goroutine may use it.
type handle struct {
	host    *Host
	profile *profile
}

func (h *handle) snapshot() shared {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	return shared{snapshot: h.host.follower.latest}
}

// SnapshotSharedLister is the snapshot of the latest cycle.
func (h *handle) SnapshotSharedLister() fwk.SharedLister { return h.snapshot() }

// MutableSnapshotSharedLister is for pod groups; its changes fail.
func (h *handle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister { return h.snapshot() }

func (h *handle) ClientSet() kubernetes.Interface           { return h.host.cfg.API.Client }
func (h *handle) KubeConfig() *rest.Config                  { return h.host.cfg.API.Config }
func (h *handle) EventRecorder() events.EventRecorderLogger { return h.host.cfg.API.Recorder }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory {
	return h.host.cfg.API.Informers
}
func (h *handle) ProfileName() string            { return h.profile.name }
func (h *handle) Parallelizer() fwk.Parallelizer { return parallelizer{h.host} }

// SharedDRAManager returns an error from each call: claims and devices are not passed
// to out-of-tree plugins.
func (h *handle) SharedDRAManager() fwk.SharedDRAManager { return noDevices{} }

// SharedCSIManager lists CSINodes from the informer.
func (h *handle) SharedCSIManager() fwk.CSIManager { return csiManager{h.host} }

// PodGroupManager has no groups.
func (h *handle) PodGroupManager() fwk.PodGroupManager { return noGroups{} }

// Extenders, APIDispatcher and APICacher are nil, as in a kube-scheduler without
// extenders and without the feature SchedulerAsyncAPICalls.
func (h *handle) Extenders() []fwk.Extender        { return nil }
func (h *handle) APIDispatcher() fwk.APIDispatcher { return nil }
func (h *handle) APICacher() fwk.APICacher         { return nil }

// SignPod signs no pod: results are not cached for out-of-tree plugins.
func (h *handle) SignPod(context.Context, *v1.Pod) fwk.PodSignature { return nil }

// Activate posts the activation of pods.
func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	uids := make([]types.UID, 0, len(pods))
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	h.host.post(func(o Owner) { o.Pods.Activate(uids...) })
}

// AddNominatedPod sets the nomination of a pod, to the given node or to
// status.nominatedNodeName.
func (h *handle) AddNominatedPod(_ klog.Logger, pod fwk.PodInfo, info *fwk.NominatingInfo) {
	node := pod.GetPod().Status.NominatedNodeName
	if info.Mode() == fwk.ModeOverride {
		node = info.NominatedNodeName
	}
	digest := ownPodInfo(pod).digest
	h.host.nominate(func(n *queue.Nominator) { n.Nominate(digest, node) })
}

// DeleteNominatedPodIfExists clears the nomination of a pod.
func (h *handle) DeleteNominatedPodIfExists(pod *v1.Pod) {
	h.host.nominate(func(n *queue.Nominator) { n.Clear(pod.UID) })
}

func (h *handle) UpdateNominatedPod(_ klog.Logger, before *v1.Pod, after fwk.PodInfo) {
	was, is := podInfoOf(before).digest, ownPodInfo(after).digest
	h.host.nominate(func(n *queue.Nominator) { n.Update(was, is) })
}

// nominate changes the nominations now, or when the owner is attached.
func (h *Host) nominate(f func(*queue.Nominator)) {
	h.mu.Lock()
	attached := h.owner.Do != nil
	if !attached {
		h.early = append(h.early, func(o Owner) { f(o.Scheduler.Nominator) })
	}
	h.mu.Unlock()
	if attached {
		ask(h, func(o Owner) struct{} {
			f(o.Scheduler.Nominator)
			return struct{}{}
		})
	}
}

func (h *handle) NominatedPodsForNode(name string) []fwk.PodInfo {
	return ask(h.host, func(o Owner) (pods []fwk.PodInfo) {
		for pod := range o.Scheduler.Nominator.On(nodetable.Intern(name)) {
			pods = append(pods, newPodInfo(pod))
		}
		return pods
	})
}

// waiting is a snapshot of a waiting pod.
type waiting struct {
	host *Host
	pod  *nodetable.Pod
}

func (h *Host) waiting() []fwk.WaitingPod {
	return ask(h, func(o Owner) (all []fwk.WaitingPod) {
		for pod := range o.Scheduler.WaitingPods() {
			all = append(all, waiting{h, pod})
		}
		return all
	})
}

// IterateOverWaitingPods yields the waiting pods of all profiles.
func (h *handle) IterateOverWaitingPods(yield func(fwk.WaitingPod)) {
	for _, w := range h.host.waiting() {
		yield(w)
	}
}

// GetWaitingPod finds a waiting pod; nil: it does not wait.
func (h *handle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	for _, w := range h.host.waiting() {
		if w.GetPod().UID == uid {
			return w
		}
	}
	return nil
}

// RejectWaitingPod posts the rejection of a pod; false: it does not wait.
func (h *handle) RejectWaitingPod(uid types.UID) bool {
	w := h.GetWaitingPod(uid)
	return w != nil && w.Reject("", "removed")
}

func (w waiting) GetPod() *v1.Pod { return w.pod.Object }

func (w waiting) GetPendingPlugins() []string {
	return ask(w.host, func(o Owner) []string {
		for pod, plugins := range o.Scheduler.WaitingPods() {
			if pod.UID == w.pod.UID {
				return plugins
			}
		}
		return nil
	})
}

// Allow posts that a plugin allows the pod.
func (w waiting) Allow(plugin string) {
	w.host.post(func(o Owner) { o.Pods.Allow(w.pod.UID, plugin) })
}

// Reject posts a rejection with the code Unschedulable; false: the pod does not
// wait.
func (w waiting) Reject(plugin, reason string) bool {
	return w.end(framework.Status{Code: framework.Unschedulable, Plugin: plugin, Reason: reason})
}

// Preempt posts a rejection with the code Error: the pod is retried.
func (w waiting) Preempt(plugin, reason string) bool {
	return w.end(framework.Status{Code: framework.Error, Plugin: plugin, Err: preempted(reason)})
}

type preempted string

func (p preempted) Error() string { return "waiting on permit for pod: " + string(p) }

func (w waiting) end(s framework.Status) bool {
	waits := ask(w.host, func(o Owner) bool { return o.Scheduler.IsWaiting(w.pod.UID) })
	w.host.post(func(o Owner) { o.Pods.Reject(w.pod.UID, s) })
	return waits
}

func (h *handle) AddPodInPreBind(uid types.UID, cancel context.CancelCauseFunc) {
	h.host.prebinds.add(uid, cancel)
}

// GetPodInPreBind finds a pod in PreBind; nil: it is not.
func (h *handle) GetPodInPreBind(uid types.UID) fwk.PodInPreBind {
	if b := h.host.prebinds.get(uid); b != nil {
		return b
	}
	return nil
}

func (h *handle) RemovePodInPreBind(uid types.UID) { h.host.prebinds.remove(uid) }

type parallelizer struct{ host *Host }

// Until runs the pieces concurrently until all are done or ctx ends.
func (p parallelizer) Until(ctx context.Context, pieces int, do workqueue.DoWorkPieceFunc, _ string) {
	p.host.until(ctx, pieces, do)
}

// until runs the pieces in chunks of about the square root of their number, as
// kube-scheduler's parallelizer.
func (h *Host) until(ctx context.Context, pieces int, do func(int)) {
	if pieces == 1 {
		do(0)
		return
	}
	chunk := max(1, min(int(math.Sqrt(float64(pieces))), pieces/h.cfg.Parallelism+1))
	workqueue.ParallelizeUntil(ctx, h.cfg.Parallelism, pieces, do, workqueue.WithChunkSize(chunk))
}

type csiManager struct{ host *Host }

func (m csiManager) CSINodes() fwk.CSINodeLister { return m }

func (m csiManager) List() ([]*storagev1.CSINode, error) {
	if err := m.host.cfg.API.err(); err != nil {
		return nil, err
	}
	return m.host.cfg.API.Informers.Storage().V1().CSINodes().Lister().List(labels.Everything())
}

func (m csiManager) Get(name string) (*storagev1.CSINode, error) {
	if err := m.host.cfg.API.err(); err != nil {
		return nil, err
	}
	return m.host.cfg.API.Informers.Storage().V1().CSINodes().Lister().Get(name)
}
