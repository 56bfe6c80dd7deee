package embeddedapi

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// resize is the subresource by which the resources of a pod change.
const resize = "resize"

// admitResize refuses what the node of a pod cannot do, as the plugins NodeDeclaredFeatureValidator and PodResizeValidator of
// kube-apiserver.
func (a *API) admitResize(k *kind, pod, before *v1.Pod) error {
	name := pod.Spec.NodeName
	if name == "" || pod.Generation == before.Generation {
		return nil
	}
	forbidden := func(reason metav1.CauseType, why string, values ...any) error {
		err := apierrors.NewForbidden(k.groupResource(), pod.Name, fmt.Errorf(why, values...))
		if reason != "" {
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: reason}}
		}
		return err
	}
	node, found := a.kindOf("Node").table.Get(store.Key{Name: name}).(*v1.Node)
	if !found {
		return forbidden("", "node %q not found", name)
	}
	var missing []string
	was, is := &types.PodInfo{Spec: &before.Spec}, &types.PodInfo{Spec: &pod.Spec}
	for _, feature := range []types.Feature{inplacepodresize.PodLevelResourcesResizeFeature, inplacepodresize.NonSidecarInitContainerResizeFeature} {
		if feature.InferForUpdate(was, is) && !slices.Contains(node.Status.DeclaredFeatures, feature.Name()) {
			missing = append(missing, feature.Name())
		}
	}
	if len(missing) > 0 {
		return forbidden("", "pod update requires features %s which are not available on node %q", strings.Join(missing, ", "), name)
	}
	if system := node.Labels[v1.LabelOSStable]; system != "" && system != "linux" {
		return forbidden("UnsupportedPlatform", "pod resize is only supported on linux nodes, node %q is %q", name, system)
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var over []string
	if cpu, room := requests.Cpu(), node.Status.Allocatable.Cpu(); cpu.Cmp(*room) > 0 {
		over = append(over, fmt.Sprintf("cpu, requested: %d, allocatable: %d", cpu.MilliValue(), room.MilliValue()))
	}
	if memory, room := requests.Memory(), node.Status.Allocatable.Memory(); memory.Cmp(*room) > 0 {
		over = append(over, fmt.Sprintf("memory, requested: %d, allocatable: %d", memory.Value(), room.Value()))
	}
	if len(over) > 0 {
		return forbidden("NodeCapacity", "node didn't have enough allocatable resources: %s", strings.Join(over, "; "))
	}
	return nil
}
