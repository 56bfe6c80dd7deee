package strategy

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// SetLimits sets the requests and limits that the containers of a pod leave out to those of LimitRanges, in place.
func SetLimits(limits []*v1.LimitRange, pod *v1.Pod) error {
	if len(limits) == 0 {
		return nil
	}
	completed := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, completed, nil); err != nil {
		return err
	}
	for _, l := range limits {
		if err := limitranger.PodMutateLimitFunc(l, completed); err != nil {
			return err
		}
	}
	return legacyscheme.Scheme.Convert(completed, pod, nil)
}

// Violation returns the error for a pod or a claim that a LimitRange does not allow. Objects of other kinds have no limits.
func Violation(limits *v1.LimitRange, object Object) error {
	limited, err := internal(object)
	if err != nil {
		return err
	}
	switch o := limited.(type) {
	case *api.Pod:
		return limitranger.PodValidateLimitFunc(limits, o)
	case *api.PersistentVolumeClaim:
		return limitranger.PersistentVolumeClaimValidateLimitFunc(limits, o)
	}
	return nil
}

// CheckAddresses checks the addresses of a service and their families, as kube-apiserver does before it allocates any.
func CheckAddresses(service, before *v1.Service) (field.ErrorList, error) {
	next, old := &api.Service{}, (*api.Service)(nil)
	if before != nil {
		old = &api.Service{}
		if err := legacyscheme.Scheme.Convert(before.DeepCopy(), old, nil); err != nil {
			return nil, err
		}
	}
	if err := legacyscheme.Scheme.Convert(service.DeepCopy(), next, nil); err != nil {
		return nil, err
	}
	return validation.ValidateServiceClusterIPsRelatedFields(next, old), nil
}
