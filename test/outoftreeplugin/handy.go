package main

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const handyName = "Handy"

// handy calls every method of the handle in Reserve and records the results. In
// PreBind it activates a pod.
type handy struct {
	*notebook
	handle fwk.Handle
}

func newHandy(notes *notebook) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		handle.SharedInformerFactory().Core().V1().Secrets().Informer()
		handle.Activate(klog.Background(), nil)
		return &handy{notes, handle}, nil
	}
}

func (h *handy) Name() string { return handyName }

func (h *handy) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	h.missing(ctx, pod)
	h.promises(pod, node)
	h.run(ctx, state, pod)
	return nil
}

func (h *handy) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string) {}

// missing records the results of unsupported methods.
func (h *handy) missing(ctx context.Context, pod *v1.Pod) {
	say := func(what string, err error) { h.note("%s: %v", what, err) }
	_, err := h.handle.ClientSet().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	say("client", err)
	client, err := rest.HTTPClientFor(h.handle.KubeConfig())
	if err == nil {
		_, err = client.Get(h.handle.KubeConfig().Host)
	}
	say("config", err)
	h.handle.EventRecorder().WithLogger(klog.Background()).Eventf(pod, nil, v1.EventTypeNormal, "Reserved", "Reserving", "by %s", handyName)
	_, err = h.handle.SharedInformerFactory().Core().V1().Secrets().Lister().List(labels.Everything())
	say("lister", err)
	_, err = h.handle.SharedCSIManager().CSINodes().Get("n1")
	say("csi", err)
	_, err = h.handle.SharedDRAManager().ResourceClaims().List()
	say("claims", err)
	_, err = h.handle.PodGroupManager().PodGroups().Get("default", "group")
	say("groups", err)
	_, err = h.handle.SnapshotSharedLister().PodGroupStates().Get("default", "group")
	say("group states", err)
	say("mutations", h.handle.MutableSnapshotSharedLister().StartMutations())
	h.note("profile %s, extenders %d, signed %t, claim in use %t", h.handle.ProfileName(), len(h.handle.Extenders()), h.handle.SignPod(ctx, pod) != nil, h.handle.SnapshotSharedLister().StorageInfos().IsPVCUsedByPods("default/c"))
}

// promises records the nominated pods of a node, before and after a nomination.
func (h *handy) promises(pod *v1.Pod, node string) {
	names := func() string {
		var all []string
		for _, info := range h.handle.NominatedPodsForNode(node) {
			all = append(all, info.GetPod().Name)
		}
		return strings.Join(all, ",")
	}
	h.note("promised %s: %q", node, names())
	other := pod.DeepCopy()
	other.UID, other.Name = "other", "other"
	listed, err := h.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		h.note("node: %v", err)
		return
	}
	tried := listed.Snapshot()
	tried.AddPodInfo(podInfo{other})
	h.note("with it %d pods, without %d", len(tried.GetPods()), len(listed.GetPods()))
	h.handle.AddNominatedPod(klog.Background(), podInfo{other}, &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride})
	h.note("promised %s: %q", node, names())
	h.handle.DeleteNominatedPodIfExists(other)
	h.note("promised %s: %q", node, names())
}

// run runs the other plugins.
func (h *handy) run(ctx context.Context, state fwk.CycleState, pod *v1.Pod) {
	nodes, err := h.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		h.note("list: %v", err)
	}
	_, s := h.handle.RunScorePlugins(ctx, state, pod, nodes)
	h.note("score at once: %s", s.Message())
	s = h.handle.RunPreScorePlugins(ctx, state, pod, nodes)
	h.note("prescore: %s", s.Code())
	scores, s := h.handle.RunScorePlugins(ctx, state, pod, nodes)
	h.note("score: %s", s.Code())
	for _, score := range scores {
		total := int64(0)
		for _, by := range score.Scores {
			total += by.Score
		}
		h.note("%s has the sum of %d plugins: %t", score.Name, len(score.Scores), total == score.TotalScore)
	}
	for _, node := range nodes {
		h.note("fits %s: %s", node.Node().Name, h.handle.RunFilterPlugins(ctx, state, pod, node).Code())
	}
	changed := nodes[0].Snapshot()
	object := changed.Node().DeepCopy()
	object.Labels = map[string]string{"new": "label"}
	changed.SetNode(object)
	h.note("changed node: %s", h.handle.RunFilterPlugins(ctx, state, pod, changed).Message())
	other := pod.DeepCopy()
	other.UID = "other"
	h.note("other pod: %s", h.handle.RunFilterPlugins(ctx, state, other, nodes[0]).Message())
	h.note("unknown node: %s", h.handle.RunReservePluginsReserve(ctx, state, pod, "nowhere").Message())
	h.note("no waiting pod: %t %t", h.handle.GetWaitingPod(pod.UID) == nil, h.handle.RejectWaitingPod(pod.UID))
}

func (h *handy) PreBindPreFlight(context.Context, fwk.CycleState, *v1.Pod, string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	return nil, nil
}

func (h *handy) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	h.note("promised while binding: %d", len(h.handle.NominatedPodsForNode(node)))
	h.note("filter while binding: %s", h.handle.RunFilterPlugins(ctx, state, pod, nil).Message())
	return nil
}

// podInfo is a plugin's own PodInfo.
type podInfo struct{ pod *v1.Pod }

func (p podInfo) GetPod() *v1.Pod                                         { return p.pod }
func (podInfo) GetRequiredAffinityTerms() []fwk.AffinityTerm              { return nil }
func (podInfo) GetRequiredAntiAffinityTerms() []fwk.AffinityTerm          { return nil }
func (podInfo) GetPreferredAffinityTerms() []fwk.WeightedAffinityTerm     { return nil }
func (podInfo) GetPreferredAntiAffinityTerms() []fwk.WeightedAffinityTerm { return nil }
func (podInfo) CalculateResource() fwk.PodResource                        { return fwk.PodResource{} }
