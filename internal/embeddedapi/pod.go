package embeddedapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// bind sets the node of a pod, once.
func (r *request) bind() (int, runtime.Object, error) {
	data, err := r.body()
	if err != nil {
		return 0, nil, err
	}
	binding := &v1.Binding{}
	if err := r.decode(data, r.Header.Get("Content-Type"), binding, core.WithKind("Binding")); err != nil {
		return 0, nil, err
	}
	if err := checkBinding(binding); err != nil {
		return 0, nil, err
	}
	_, err = r.api.update(r.Context(), change{kind: r.kind, key: r.key(), internal: true, differs: true, dryRun: r.dryRun(), next: func(old store.Object) (store.Object, error) {
		return onNode(r.kind, old.(*v1.Pod), binding)
	}})
	return http.StatusCreated, success(http.StatusCreated), err
}

func success(code int32) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Code: code}
}

func checkBinding(binding *v1.Binding) error {
	var faults utilvalidation.ErrorList
	path := utilvalidation.NewPath("target")
	if kind := binding.Target.Kind; kind != "" && kind != "Node" {
		faults = append(faults, utilvalidation.NotSupported(path.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	if binding.Target.Name == "" {
		faults = append(faults, utilvalidation.Required(path.Child("name"), ""))
	}
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(core.WithKind("Binding").GroupKind(), binding.Name, faults)
}

// onNode is a pod on its node, as BindingREST of Kubernetes' pod registry makes it.
func onNode(k *kind, old *v1.Pod, binding *v1.Binding) (store.Object, error) {
	why := ""
	switch {
	case binding.UID != "" && binding.UID != old.UID:
		why = unlike("UID", binding.UID, old.UID)
	case old.DeletionTimestamp != nil:
		why = fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", old.Name)
	case old.Spec.NodeName != "":
		why = fmt.Sprintf("pod %s is already assigned to node %q", old.Name, old.Spec.NodeName)
	case len(old.Spec.SchedulingGates) > 0:
		why = fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", old.Name)
	}
	if why != "" {
		resource := k.groupResource()
		resource.Resource += "/binding"
		return nil, conflict(resource, old, why)
	}
	pod := old.DeepCopy()
	pod.Spec.NodeName = binding.Target.Name
	pod.Status.NominatedNodeName = ""
	for _, m := range []struct {
		to   *map[string]string
		from map[string]string
	}{{&pod.Annotations, binding.Annotations}, {&pod.Labels, binding.Labels}} {
		if *m.to == nil && m.from != nil {
			*m.to = map[string]string{}
		}
		maps.Copy(*m.to, m.from)
	}
	setCondition(pod, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	return pod, nil
}

// setCondition replaces the condition of the same type. The transition time changes
// with the status.
func setCondition(pod *v1.Pod, condition v1.PodCondition) {
	condition.LastTransitionTime = metav1.Now().Rfc3339Copy()
	i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == condition.Type })
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, condition)
		return
	}
	if pod.Status.Conditions[i].Status == condition.Status {
		condition.LastTransitionTime = pod.Status.Conditions[i].LastTransitionTime
	}
	pod.Status.Conditions[i] = condition
}
