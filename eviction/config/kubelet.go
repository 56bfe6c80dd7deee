package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/evictd/evictd/internal/manifest"
)

const kubeletKind = "KubeletConfiguration"

var kubeletType = metav1.TypeMeta{APIVersion: kubelet.SchemeGroupVersion.String(), Kind: kubeletKind}

// LoadKubelet reads what a kubelet is started with: the file of --config, nil for none, and the files of
// --config-dir in their order. The kubelet fills in the default thresholds of the file before it merges
// the others, each a merge patch (RFC 7386): null deletes, and mergeDefaultEvictionSettings of a drop-in
// has no effect. Without a file it has no default thresholds (cmd/kubelet/app, NewKubeletCommand).
func LoadKubelet(base []byte, dropIns [][]byte) (EvictdConfiguration, error) {
	var k kubelet.KubeletConfiguration
	if base != nil {
		document, err := parseKubelet(base)
		if err != nil {
			return EvictdConfiguration{}, err
		}
		if _, err := document.DecodeLeniently(&k); err != nil {
			return EvictdConfiguration{}, fmt.Errorf("read KubeletConfiguration: %w", err)
		}
		fillHard(&k)
	}
	if len(dropIns) > 0 {
		merged, err := mergeDropIns(&k, dropIns)
		if err != nil {
			return EvictdConfiguration{}, fmt.Errorf("merge the drop-ins: %w", err)
		}
		k = *merged
	}
	if k.EvictionHard == nil {
		k.EvictionHard = map[string]string{}
	}
	k.MergeDefaultEvictionSettings = nil
	k.TypeMeta = kubeletType
	return fromKubelet(&k), nil
}

func parseKubelet(text []byte) (manifest.Document, error) {
	document, err := manifest.Parse(text)
	if err != nil {
		return document, fmt.Errorf("read KubeletConfiguration: %w", err)
	}
	if about, err := document.Type(); err != nil || about != kubeletType {
		return document, fmt.Errorf("read KubeletConfiguration: apiVersion %q, kind %q: expected %s %s", about.APIVersion, about.Kind, kubeletType.APIVersion, kubeletKind)
	}
	return document, nil
}

// fillHard merges the hard thresholds of a kubelet's file with the defaults: all of them if the map is nil,
// those that it leaves out if mergeDefaultEvictionSettings is set (cmd/kubelet/app, loadConfigFile).
func fillHard(k *kubelet.KubeletConfiguration) {
	if k.EvictionHard != nil && (k.MergeDefaultEvictionSettings == nil || !*k.MergeDefaultEvictionSettings) {
		return
	}
	hard := maps.Clone(defaultHard)
	maps.Copy(hard, k.EvictionHard)
	k.EvictionHard, k.MergeDefaultEvictionSettings = hard, nil
}

// mergeDropIns applies drop-ins, each a merge patch, to a configuration as JSON. Fields that are not known are ignored.
func mergeDropIns(k *kubelet.KubeletConfiguration, dropIns [][]byte) (*kubelet.KubeletConfiguration, error) {
	merged, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	for _, dropIn := range dropIns {
		document, err := parseKubelet(dropIn)
		if err != nil {
			return nil, err
		}
		var patch json.RawMessage
		if err := document.Decode(&patch); err != nil {
			return nil, err
		}
		if merged, err = jsonpatch.MergePatch(merged, patch); err != nil {
			return nil, err
		}
	}
	into := &kubelet.KubeletConfiguration{}
	return into, json.Unmarshal(merged, into)
}

func fromKubelet(k *kubelet.KubeletConfiguration) EvictdConfiguration {
	var warnings []string
	if images := k.ImageServiceEndpoint; images != "" && endpoint(images) != endpoint(k.ContainerRuntimeEndpoint) {
		warnings = append(warnings, fmt.Sprintf("imageServiceEndpoint: evictd does not ask %s: it asks containerRuntimeEndpoint for images and their disk", images))
	}
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
		PodLogsDir:                       k.PodLogsDir,
		warnings:                         warnings,
		Run:                              Run{CRIEndpoint: endpoint(k.ContainerRuntimeEndpoint), PodsCgroup: podsCgroup(k)},
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

// endpoint is the endpoint of a kubelet's file, which may be a path alone (k8s.io/cri-client, GetAddressAndDialer).
func endpoint(text string) string {
	if path.IsAbs(text) {
		return "unix:" + text
	}
	return text
}

// podsCgroup is the cgroup of the pods below cgroupRoot, if that is set: the name that the kubelet gives it with
// cgroupDriver, which is found by looking for both names if it is not set (pkg/kubelet/cm, NewCgroupName).
func podsCgroup(k *kubelet.KubeletConfiguration) string {
	parts := strings.FieldsFunc(k.CgroupRoot, func(r rune) bool { return r == '/' })
	if len(parts) == 0 {
		return ""
	}
	leaf := "kubepods"
	if k.CgroupsPerQOS != nil && !*k.CgroupsPerQOS {
		leaf = ""
	}
	cgroupfs, systemd := path.Join(path.Join(parts...), leaf), ""
	names := strings.Split(strings.ReplaceAll(cgroupfs, "-", "_"), "/")
	for i := range names {
		systemd = path.Join(systemd, strings.Join(names[:i+1], "-")+".slice")
	}
	switch k.CgroupDriver {
	case "systemd":
		return systemd
	case "cgroupfs":
		return cgroupfs
	}
	return cgroupfs + "," + systemd
}
