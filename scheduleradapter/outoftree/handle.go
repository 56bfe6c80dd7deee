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

// handle is what the plugins of a profile reach the scheduler by. Any goroutine
// may use it.
type handle struct {
	host    *Host
	profile *profile
}

func (h *handle) snapshot() shared {
	h.host.mu.Lock()
	defer h.host.mu.Unlock()
	return shared{snapshot: h.host.follower.latest}
}

// SnapshotSharedLister is the cluster as it was when the latest cycle began.
func (h *handle) SnapshotSharedLister() fwk.SharedLister { return h.snapshot() }

// MutableSnapshotSharedLister is for scheduling pods in groups: its changes fail.
func (h *handle) MutableSnapshotSharedLister() fwk.MutableSnapshotSharedLister { return h.snapshot() }

func (h *handle) ClientSet() kubernetes.Interface           { return h.host.cfg.API.Client }
func (h *handle) KubeConfig() *rest.Config                  { return h.host.cfg.API.Config }
func (h *handle) EventRecorder() events.EventRecorderLogger { return h.host.cfg.API.Recorder }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory {
	return h.host.cfg.API.Informers
}
func (h *handle) ProfileName() string            { return h.profile.name }
func (h *handle) Parallelizer() fwk.Parallelizer { return parallelizer{h.host} }

// SharedDRAManager answers every call with an error: devices are not allocated.
func (h *handle) SharedDRAManager() fwk.SharedDRAManager { return noDevices{} }

// SharedCSIManager reads the informers' CSINodes.
func (h *handle) SharedCSIManager() fwk.CSIManager { return csiManager{h.host} }

// PodGroupManager knows no groups.
func (h *handle) PodGroupManager() fwk.PodGroupManager { return noGroups{} }

// Extenders, APIDispatcher and APICacher are nil, as in a kube-scheduler without
// extenders and without the feature SchedulerAsyncAPICalls.
func (h *handle) Extenders() []fwk.Extender        { return nil }
func (h *handle) APIDispatcher() fwk.APIDispatcher { return nil }
func (h *handle) APICacher() fwk.APICacher         { return nil }

// SignPod signs no pod: nothing is cached for pods that foreign plugins look at.
func (h *handle) SignPod(context.Context, *v1.Pod) fwk.PodSignature { return nil }

// Activate makes pods active, soon.
func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	uids := make([]types.UID, 0, len(pods))
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	h.host.post(func(o Owner) { o.Pods.Activate(uids...) })
}

// AddNominatedPod promises a pod the node that is named, or else the one its
// status names.
func (h *handle) AddNominatedPod(_ klog.Logger, pod fwk.PodInfo, info *fwk.NominatingInfo) {
	node := pod.GetPod().Status.NominatedNodeName
	if info.Mode() == fwk.ModeOverride {
		node = info.NominatedNodeName
	}
	digest := ownPodInfo(pod).digest
	h.host.nominate(func(n *queue.Nominator) { n.Nominate(digest, node) })
}

// DeleteNominatedPodIfExists takes back the promise to a pod.
func (h *handle) DeleteNominatedPodIfExists(pod *v1.Pod) {
	h.host.nominate(func(n *queue.Nominator) { n.Clear(pod.UID) })
}

// UpdateNominatedPod takes in a pod's new version.
func (h *handle) UpdateNominatedPod(_ klog.Logger, before *v1.Pod, after fwk.PodInfo) {
	was, is := podInfoOf(before).digest, ownPodInfo(after).digest
	h.host.nominate(func(n *queue.Nominator) { n.Update(was, is) })
}

// nominate changes the promises: at once, or first thing when there are any.
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

// NominatedPodsForNode is who is promised room on a node.
func (h *handle) NominatedPodsForNode(name string) []fwk.PodInfo {
	return ask(h.host, func(o Owner) (pods []fwk.PodInfo) {
		for pod := range o.Scheduler.Nominator.On(nodetable.Intern(name)) {
			pods = append(pods, newPodInfo(pod))
		}
		return pods
	})
}

// waiting is a pod that waits for permission, as it was when it was asked for.
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

// IterateOverWaitingPods yields the pods that wait for permission, of all profiles.
func (h *handle) IterateOverWaitingPods(yield func(fwk.WaitingPod)) {
	for _, w := range h.host.waiting() {
		yield(w)
	}
}

// GetWaitingPod finds one of them; nil where it does not wait.
func (h *handle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	for _, w := range h.host.waiting() {
		if w.GetPod().UID == uid {
			return w
		}
	}
	return nil
}

// RejectWaitingPod ends the wait of a pod, soon; false where it does not wait.
func (h *handle) RejectWaitingPod(uid types.UID) bool {
	w := h.GetWaitingPod(uid)
	return w != nil && w.Reject("", "removed")
}

func (w waiting) GetPod() *v1.Pod { return w.pod.Object }

// GetPendingPlugins are those that have not allowed the pod yet.
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

// Allow gives a plugin's permission, soon.
func (w waiting) Allow(plugin string) {
	w.host.post(func(o Owner) { o.Pods.Allow(w.pod.UID, plugin) })
}

// Reject ends the wait, soon: the pod is unschedulable. It is false where the pod
// does not wait any more.
func (w waiting) Reject(plugin, reason string) bool {
	return w.end(framework.Status{Code: framework.Unschedulable, Plugin: plugin, Reason: reason})
}

// Preempt ends the wait, soon: the pod is tried again.
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

// AddPodInPreBind makes a binding known as one that can be cancelled.
func (h *handle) AddPodInPreBind(uid types.UID, cancel context.CancelCauseFunc) {
	h.host.prebinds.add(uid, cancel)
}

// GetPodInPreBind finds a binding that is being prepared; nil for none.
func (h *handle) GetPodInPreBind(uid types.UID) fwk.PodInPreBind {
	if b := h.host.prebinds.get(uid); b != nil {
		return b
	}
	return nil
}

// RemovePodInPreBind makes it one that cannot be cancelled.
func (h *handle) RemovePodInPreBind(uid types.UID) { h.host.prebinds.remove(uid) }

type parallelizer struct{ host *Host }

// Until runs the pieces, several at once, until all are done or ctx ends.
func (p parallelizer) Until(ctx context.Context, pieces int, do workqueue.DoWorkPieceFunc, _ string) {
	p.host.until(ctx, pieces, do)
}

// until runs pieces in chunks of about the square root of their number.
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
