package defaults

import (
	"maps"
	"regexp"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// tables hold the defaults of Kubernetes' pkg/apis/*/v1/defaults.go and of its markers +default.
// The defaults of pods that decide where they are placed are those of package admission.
var tables = []func(*Setter){podDefaults, volumeDefaults, coreDefaults, workloadDefaults, otherDefaults}

func podDefaults(s *Setter) {
	add(s, func(p *v1.Pod) {
		unset(&p.Spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
		if grace := p.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
			p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}
		setRequests(p.Spec.Containers)
		setRequests(p.Spec.InitContainers)
		if p.Spec.HostNetwork {
			setHostPorts(p.Spec.Containers)
			setHostPorts(p.Spec.InitContainers)
		}
	})
	add(s, func(p *v1.PodSpec) {
		zero(&p.ServiceAccountName, p.DeprecatedServiceAccount)
		p.DeprecatedServiceAccount = p.ServiceAccountName
		zero(&p.DNSPolicy, v1.DNSClusterFirst)
		zero(&p.RestartPolicy, v1.RestartPolicyAlways)
		unset(&p.SecurityContext, v1.PodSecurityContext{})
		unset(&p.TerminationGracePeriodSeconds, int64(v1.DefaultTerminationGracePeriodSeconds))
		zero(&p.SchedulerName, v1.DefaultSchedulerName)
	})
	add(s, func(p *v1.PodStatus) {
		switch {
		case p.PodIP != "" && (len(p.PodIPs) == 0 || p.PodIPs[0].IP != p.PodIP):
			p.PodIPs = []v1.PodIP{{IP: p.PodIP}}
		case p.PodIP == "" && len(p.PodIPs) > 0:
			p.PodIP = p.PodIPs[0].IP
		}
	})
	add(s, func(c *v1.Container) {
		zero(&c.ImagePullPolicy, pullPolicy(c.Image))
		zero(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
		zero(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	})
	add(s, func(c *v1.EphemeralContainerCommon) {
		zero(&c.ImagePullPolicy, pullPolicy(c.Image))
		zero(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
		zero(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	})
	add(s, func(p *v1.ContainerPort) { zero(&p.Protocol, v1.ProtocolTCP) })
	add(s, func(p *v1.Probe) {
		zero(&p.TimeoutSeconds, 1)
		zero(&p.PeriodSeconds, 10)
		zero(&p.SuccessThreshold, 1)
		zero(&p.FailureThreshold, 3)
	})
	add(s, func(a *v1.HTTPGetAction) {
		zero(&a.Path, "/")
		zero(&a.Scheme, v1.URISchemeHTTP)
	})
	add(s, func(a *v1.GRPCAction) { unset(&a.Service, "") })
	add(s, func(f *v1.ObjectFieldSelector) { zero(&f.APIVersion, "v1") })
	add(s, func(f *v1.FileKeySelector) { unset(&f.Optional, false) })
}

// setRequests makes limits requests where there are none.
func setRequests(containers []v1.Container) {
	for i := range containers {
		if r := &containers[i].Resources; r.Limits != nil {
			r.Requests = merged(r.Requests, r.Limits)
		}
	}
}

func setHostPorts(containers []v1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			zero(&containers[i].Ports[j].HostPort, containers[i].Ports[j].ContainerPort)
		}
	}
}

// imageName is a valid name of an image: repository, tag, digest. Without pods it is not compiled, which takes 120 KB.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?[a-z0-9]+(?:(?:[._/]|__|-+)[a-z0-9]+)*(?::([A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{32,})?$`)
})

// pullPolicy is Always for the tag latest, which an image without tag and digest has.
func pullPolicy(image string) v1.PullPolicy {
	if m := imageName().FindStringSubmatch(image); m != nil && (m[1] == "latest" || m[1] == "" && m[2] == "") {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func volumeDefaults(s *Setter) {
	add(s, func(v *v1.Volume) {
		if v.VolumeSource == (v1.VolumeSource{}) {
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
	})
	add(s, func(v *v1.ImageVolumeSource) { zero(&v.PullPolicy, pullPolicy(v.Reference)) })
	add(s, func(v *v1.SecretVolumeSource) { unset(&v.DefaultMode, v1.SecretVolumeSourceDefaultMode) })
	add(s, func(v *v1.ConfigMapVolumeSource) { unset(&v.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode) })
	add(s, func(v *v1.DownwardAPIVolumeSource) { unset(&v.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode) })
	add(s, func(v *v1.ProjectedVolumeSource) { unset(&v.DefaultMode, v1.ProjectedVolumeSourceDefaultMode) })
	add(s, func(v *v1.ServiceAccountTokenProjection) { unset(&v.ExpirationSeconds, 3600) })
	add(s, func(v *v1.HostPathVolumeSource) { unset(&v.Type, v1.HostPathUnset) })
	add(s, func(v *v1.ISCSIVolumeSource) { zero(&v.ISCSIInterface, "default") })
	add(s, func(v *v1.ISCSIPersistentVolumeSource) { zero(&v.ISCSIInterface, "default") })
	add(s, func(v *v1.RBDVolumeSource) {
		zero(&v.RBDPool, "rbd")
		zero(&v.RadosUser, "admin")
		zero(&v.Keyring, "/etc/ceph/keyring")
	})
	add(s, func(v *v1.RBDPersistentVolumeSource) {
		zero(&v.RBDPool, "rbd")
		zero(&v.RadosUser, "admin")
		zero(&v.Keyring, "/etc/ceph/keyring")
	})
	add(s, func(v *v1.ScaleIOVolumeSource) {
		zero(&v.StorageMode, "ThinProvisioned")
		zero(&v.FSType, "xfs")
	})
	add(s, func(v *v1.ScaleIOPersistentVolumeSource) {
		zero(&v.StorageMode, "ThinProvisioned")
		zero(&v.FSType, "xfs")
	})
	add(s, func(v *v1.AzureDiskVolumeSource) {
		unset(&v.CachingMode, v1.AzureDataDiskCachingReadWrite)
		unset(&v.Kind, v1.AzureSharedBlobDisk)
		unset(&v.FSType, "ext4")
		unset(&v.ReadOnly, false)
	})
	add(s, func(v *v1.PersistentVolumeClaimSpec) { unset(&v.VolumeMode, v1.PersistentVolumeFilesystem) })
	add(s, func(v *v1.PersistentVolumeClaim) { zero(&v.Status.Phase, v1.ClaimPending) })
	add(s, func(v *v1.PersistentVolume) {
		zero(&v.Spec.PersistentVolumeReclaimPolicy, v1.PersistentVolumeReclaimRetain)
		unset(&v.Spec.VolumeMode, v1.PersistentVolumeFilesystem)
		zero(&v.Status.Phase, v1.VolumePending)
	})
}

func coreDefaults(s *Setter) {
	add(s, func(n *v1.NodeStatus) {
		if n.Allocatable == nil && n.Capacity != nil {
			n.Allocatable = n.Capacity.DeepCopy()
		}
	})
	add(s, func(o *v1.Secret) { zero(&o.Type, v1.SecretTypeOpaque) })
	add(s, func(o *v1.EndpointPort) { zero(&o.Protocol, v1.ProtocolTCP) })
	add(s, func(o *v1.ReplicationController) {
		if o.Spec.Template != nil && o.Spec.Template.Labels != nil {
			if len(o.Spec.Selector) == 0 {
				o.Spec.Selector = maps.Clone(o.Spec.Template.Labels)
			}
			if len(o.Labels) == 0 {
				o.Labels = maps.Clone(o.Spec.Template.Labels)
			}
		}
	})
	add(s, func(o *v1.ReplicationControllerSpec) { unset(&o.Replicas, 1) })
	add(s, setService)
	add(s, func(o *v1.LimitRangeItem) {
		if o.Type != v1.LimitTypeContainer {
			return
		}
		o.Default = merged(o.Default, o.Max)
		o.DefaultRequest = merged(o.DefaultRequest, o.Default, o.Min)
	})
}

// merged adds what earlier lists do not have; it is not nil.
func merged(lists ...v1.ResourceList) v1.ResourceList {
	all := v1.ResourceList{}
	for _, list := range lists {
		for name, amount := range list {
			if _, has := all[name]; !has {
				all[name] = amount.DeepCopy()
			}
		}
	}
	return all
}
