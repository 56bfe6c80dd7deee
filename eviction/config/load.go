package config

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/manifest"
)

const kubeletKind = "KubeletConfiguration"

// Load reads a configuration file strictly: an EvictdConfiguration, or a
// KubeletConfiguration, of which it uses the eviction, reserved-resources and image
// collection fields. The error joins every fault; the other fields are read, so that
// Compile can find their faults.
func Load(data []byte) (EvictdConfiguration, error) {
	documents := manifest.Split(data)
	if len(documents) != 1 {
		return EvictdConfiguration{}, fmt.Errorf("expected one document of kind %s or KubeletConfiguration, found %d", Kind, len(documents))
	}
	about, err := manifest.TypeOf(documents[0])
	if err != nil {
		return EvictdConfiguration{}, err
	}
	var c EvictdConfiguration
	switch about {
	case metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}:
		err = manifest.Decode(documents[0], &c)
	case metav1.TypeMeta{APIVersion: kubelet.SchemeGroupVersion.String(), Kind: kubeletKind}:
		var k kubelet.KubeletConfiguration
		err = errors.Join(manifest.Decode(documents[0], &k), checkKubelet(&k).ToAggregate())
		c = fromKubelet(&k)
	default:
		err = fmt.Errorf("apiVersion %q, kind %q: expected %s %s or %s KubeletConfiguration",
			about.APIVersion, about.Kind, APIVersion, Kind, kubelet.SchemeGroupVersion)
	}
	return c, errors.Join(manifest.Faults(err)...)
}

// LoadKubelet reads the files of a kubelet of any version: its configuration and the drop-ins, in
// their order. As with the kubelet a later one wins by field, in maps by key. Fields that are not
// known are ignored.
func LoadKubelet(documents ...[]byte) (EvictdConfiguration, error) {
	var k kubelet.KubeletConfiguration
	for _, document := range documents {
		if err := yaml.Unmarshal(document, &k); err != nil {
			return EvictdConfiguration{}, fmt.Errorf("read KubeletConfiguration: %w", err)
		}
	}
	return fromKubelet(&k), nil
}

func fromKubelet(k *kubelet.KubeletConfiguration) EvictdConfiguration {
	return EvictdConfiguration{
		TypeMeta:                         k.TypeMeta,
		EvictionHard:                     k.EvictionHard,
		EvictionSoft:                     k.EvictionSoft,
		EvictionSoftGracePeriod:          k.EvictionSoftGracePeriod,
		EvictionMinimumReclaim:           k.EvictionMinimumReclaim,
		EvictionMaxPodGracePeriod:        k.EvictionMaxPodGracePeriod,
		EvictionPressureTransitionPeriod: k.EvictionPressureTransitionPeriod,
		MergeDefaultEvictionSettings:     k.MergeDefaultEvictionSettings,
		LocalStorageCapacityIsolation:    k.LocalStorageCapacityIsolation,
		SystemReserved:                   k.SystemReserved,
		KubeReserved:                     k.KubeReserved,
		EnforceNodeAllocatable:           k.EnforceNodeAllocatable,
		SystemReservedCgroup:             k.SystemReservedCgroup,
		KubeReservedCgroup:               k.KubeReservedCgroup,
		ImageGCHighThresholdPercent:      k.ImageGCHighThresholdPercent,
		ImageGCLowThresholdPercent:       k.ImageGCLowThresholdPercent,
		ImageMinimumGCAge:                k.ImageMinimumGCAge,
		ImageMaximumGCAge:                k.ImageMaximumGCAge,
		NodeStatusUpdateFrequency:        k.NodeStatusUpdateFrequency,
		Run:                              Run{CRIEndpoint: k.ContainerRuntimeEndpoint},
	}
}

// checkKubelet finds the faults of fields that only a KubeletConfiguration has.
func checkKubelet(k *kubelet.KubeletConfiguration) (faults field.ErrorList) {
	enforced := k.EnforceNodeAllocatable
	if enforced == nil {
		enforced = []string{enforcePods}
	}
	enforces := slices.ContainsFunc(enforced, func(name string) bool { return name != enforceNone })
	if k.CgroupsPerQOS != nil && !*k.CgroupsPerQOS && enforces {
		faults = append(faults, field.Invalid(field.NewPath("cgroupsPerQOS"), false, "enforceNodeAllocatable needs it, unless that is [none]"))
	}
	for _, reservation := range []struct{ field, cgroup string }{
		{"systemReservedCgroup", k.SystemReservedCgroup},
		{"kubeReservedCgroup", k.KubeReservedCgroup},
	} {
		if k.ReservedSystemCPUs != "" && reservation.cgroup != "" {
			faults = append(faults, field.Forbidden(field.NewPath(reservation.field), "excluded by reservedSystemCPUs"))
		}
	}
	return faults
}
