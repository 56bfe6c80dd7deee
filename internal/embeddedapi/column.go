package embeddedapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// The columns are those of Kubernetes' internal printers.

var nodeColumns = []column{nameColumn,
	col("Status", func(n *v1.Node) any { return nodeStatus(n) }),
	col("Roles", func(n *v1.Node) any { return nodeRoles(n) }),
	ageColumn,
	col("Version", func(n *v1.Node) any { return n.Status.NodeInfo.KubeletVersion }),
	wide(col("Internal-IP", func(n *v1.Node) any { return nodeAddress(n, v1.NodeInternalIP) })),
	wide(col("External-IP", func(n *v1.Node) any { return nodeAddress(n, v1.NodeExternalIP) })),
	wide(col("OS-Image", func(n *v1.Node) any { return cmp.Or(n.Status.NodeInfo.OSImage, "<unknown>") })),
	wide(col("Kernel-Version", func(n *v1.Node) any { return cmp.Or(n.Status.NodeInfo.KernelVersion, "<unknown>") })),
	wide(col("Container-Runtime", func(n *v1.Node) any { return cmp.Or(n.Status.NodeInfo.ContainerRuntimeVersion, "<unknown>") })),
}

func nodeStatus(n *v1.Node) string {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			status = "Ready"
		} else if c.Type == v1.NodeReady {
			status = "NotReady"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(n *v1.Node) string {
	var roles []string
	for _, label := range slices.Sorted(maps.Keys(n.Labels)) {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		}
	}
	return cmp.Or(strings.Join(roles, ","), "<none>")
}

func nodeAddress(n *v1.Node, kind v1.NodeAddressType) string {
	for _, address := range n.Status.Addresses {
		if address.Type == kind {
			return address.Address
		}
	}
	return "<none>"
}

var podColumns = []column{nameColumn,
	col("Ready", func(p *v1.Pod) any { return podReady(p) }),
	col("Status", func(p *v1.Pod) any { return podStatus(p) }),
	col("Restarts", func(p *v1.Pod) any { return podRestarts(p) }),
	ageColumn,
	wide(col("IP", func(p *v1.Pod) any { return cmp.Or(p.Status.PodIP, "<none>") })),
	wide(col("Node", func(p *v1.Pod) any { return cmp.Or(p.Spec.NodeName, "<none>") })),
	wide(col("Nominated Node", func(p *v1.Pod) any { return cmp.Or(p.Status.NominatedNodeName, "<none>") })),
	wide(col("Readiness Gates", func(p *v1.Pod) any { return podGates(p) })),
}

func podReady(p *v1.Pod) string {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		if c.Ready && c.State.Running != nil {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(p.Spec.Containers))
}

// podStatus is the phase, or what says more than that.
func podStatus(p *v1.Pod) string {
	status := string(p.Status.Phase)
	if p.Status.Reason != "" {
		status = p.Status.Reason
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated {
			status = c.Reason
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if p.Status.Reason != "" {
			break
		}
		switch waiting, ended := c.State.Waiting, c.State.Terminated; {
		case waiting != nil && waiting.Reason != "":
			status = waiting.Reason
		case ended != nil && ended.Reason != "":
			status = ended.Reason
		case ended != nil && ended.Signal != 0:
			status = fmt.Sprintf("Signal:%d", ended.Signal)
		case ended != nil:
			status = fmt.Sprintf("ExitCode:%d", ended.ExitCode)
		}
	}
	if p.DeletionTimestamp != nil && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		status = "Terminating"
	}
	return status
}

func podRestarts(p *v1.Pod) string {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return strconv.Itoa(n)
}

func podGates(p *v1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return "<none>"
	}
	n := 0
	for _, gate := range p.Spec.ReadinessGates {
		if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == gate.ConditionType && c.Status == v1.ConditionTrue }) {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(p.Spec.ReadinessGates))
}

var eventColumns = []column{
	col("Last Seen", func(e *v1.Event) any { return eventLastSeen(e) }),
	col("Type", func(e *v1.Event) any { return e.Type }),
	col("Reason", func(e *v1.Event) any { return e.Reason }),
	col("Object", func(e *v1.Event) any { return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name }),
	wide(col("Source", func(e *v1.Event) any { return eventSource(e) })),
	col("Message", func(e *v1.Event) any { return strings.TrimSpace(e.Message) }),
	wide(col("Count", func(e *v1.Event) any { return strconv.Itoa(eventCount(e)) })),
	wide(nameColumn),
}

func eventLastSeen(e *v1.Event) string {
	switch {
	case e.Series != nil:
		return age(metav1.Time(e.Series.LastObservedTime))
	case !e.LastTimestamp.IsZero():
		return age(e.LastTimestamp)
	}
	return age(metav1.Time(e.EventTime))
}

func eventCount(e *v1.Event) int {
	if e.Series != nil {
		return int(e.Series.Count)
	}
	return max(1, int(e.Count))
}

var namespaceColumns = []column{nameColumn, col("Status", func(n *v1.Namespace) any { return string(n.Status.Phase) }), ageColumn}

var priorityClassColumns = []column{nameColumn,
	col("Value", func(c *schedulingv1.PriorityClass) any { return strconv.Itoa(int(c.Value)) }),
	col("Global-Default", func(c *schedulingv1.PriorityClass) any { return strconv.FormatBool(c.GlobalDefault) }),
	ageColumn,
	col("PreemptionPolicy", func(c *schedulingv1.PriorityClass) any { return string(ptr.Deref(c.PreemptionPolicy, "")) }),
}

var runtimeClassColumns = []column{nameColumn, col("Handler", func(c *nodev1.RuntimeClass) any { return c.Handler }), ageColumn}

var storageClassColumns = []column{nameColumn,
	col("Provisioner", func(c *storagev1.StorageClass) any { return c.Provisioner }),
	col("ReclaimPolicy", func(c *storagev1.StorageClass) any {
		return string(ptr.Deref(c.ReclaimPolicy, v1.PersistentVolumeReclaimDelete))
	}),
	col("VolumeBindingMode", func(c *storagev1.StorageClass) any { return string(ptr.Deref(c.VolumeBindingMode, "")) }),
	ageColumn,
}

var csiNodeColumns = []column{nameColumn, col("Drivers", func(n *storagev1.CSINode) any { return strconv.Itoa(len(n.Spec.Drivers)) }), ageColumn}

var attachmentColumns = []column{nameColumn,
	col("Attacher", func(a *storagev1.VolumeAttachment) any { return a.Spec.Attacher }),
	col("PV", func(a *storagev1.VolumeAttachment) any { return ptr.Deref(a.Spec.Source.PersistentVolumeName, "") }),
	col("Node", func(a *storagev1.VolumeAttachment) any { return a.Spec.NodeName }),
	col("Attached", func(a *storagev1.VolumeAttachment) any { return strconv.FormatBool(a.Status.Attached) }),
	ageColumn,
}

var accessModes = map[v1.PersistentVolumeAccessMode]string{v1.ReadWriteOnce: "RWO", v1.ReadOnlyMany: "ROX", v1.ReadWriteMany: "RWX", v1.ReadWriteOncePod: "RWOP"}

func modes(list []v1.PersistentVolumeAccessMode) string {
	var short []string
	for _, mode := range list {
		short = append(short, accessModes[mode])
	}
	return strings.Join(short, ",")
}

var volumeColumns = []column{nameColumn,
	col("Capacity", func(p *v1.PersistentVolume) any { return new(p.Spec.Capacity[v1.ResourceStorage]).String() }),
	col("Access Modes", func(p *v1.PersistentVolume) any { return modes(p.Spec.AccessModes) }),
	col("Reclaim Policy", func(p *v1.PersistentVolume) any { return string(p.Spec.PersistentVolumeReclaimPolicy) }),
	col("Status", func(p *v1.PersistentVolume) any { return string(p.Status.Phase) }),
	col("Claim", func(p *v1.PersistentVolume) any {
		if p.Spec.ClaimRef == nil {
			return ""
		}
		return p.Spec.ClaimRef.Namespace + "/" + p.Spec.ClaimRef.Name
	}),
	col("StorageClass", func(p *v1.PersistentVolume) any { return p.Spec.StorageClassName }),
	ageColumn,
}

var claimColumns = []column{nameColumn,
	col("Status", func(c *v1.PersistentVolumeClaim) any { return string(c.Status.Phase) }),
	col("Volume", func(c *v1.PersistentVolumeClaim) any { return c.Spec.VolumeName }),
	col("Capacity", func(c *v1.PersistentVolumeClaim) any { return new(c.Status.Capacity[v1.ResourceStorage]).String() }),
	col("Access Modes", func(c *v1.PersistentVolumeClaim) any { return modes(c.Status.AccessModes) }),
	col("StorageClass", func(c *v1.PersistentVolumeClaim) any { return ptr.Deref(c.Spec.StorageClassName, "") }),
	ageColumn,
}

var serviceColumns = []column{nameColumn,
	col("Type", func(s *v1.Service) any { return string(s.Spec.Type) }),
	col("Cluster-IP", func(s *v1.Service) any { return cmp.Or(s.Spec.ClusterIP, "<none>") }),
	col("Port(s)", func(s *v1.Service) any {
		var ports []string
		for _, p := range s.Spec.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		return cmp.Or(strings.Join(ports, ","), "<none>")
	}),
	ageColumn,
	wide(col("Selector", func(s *v1.Service) any {
		return metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: s.Spec.Selector})
	})),
}

var replicaSetColumns = []column{nameColumn,
	col("Desired", func(r *appsv1.ReplicaSet) any { return number(ptr.Deref(r.Spec.Replicas, 0)) }),
	col("Current", func(r *appsv1.ReplicaSet) any { return number(r.Status.Replicas) }),
	col("Ready", func(r *appsv1.ReplicaSet) any { return number(r.Status.ReadyReplicas) }),
	ageColumn,
}

var controllerColumns = []column{nameColumn,
	col("Desired", func(r *v1.ReplicationController) any { return number(ptr.Deref(r.Spec.Replicas, 0)) }),
	col("Current", func(r *v1.ReplicationController) any { return number(r.Status.Replicas) }),
	col("Ready", func(r *v1.ReplicationController) any { return number(r.Status.ReadyReplicas) }),
	ageColumn,
}

var statefulSetColumns = []column{nameColumn,
	col("Ready", func(s *appsv1.StatefulSet) any {
		return fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 0))
	}),
	ageColumn,
}

var daemonSetColumns = []column{nameColumn,
	col("Desired", func(d *appsv1.DaemonSet) any { return number(d.Status.DesiredNumberScheduled) }),
	col("Current", func(d *appsv1.DaemonSet) any { return number(d.Status.CurrentNumberScheduled) }),
	col("Ready", func(d *appsv1.DaemonSet) any { return number(d.Status.NumberReady) }),
	ageColumn,
}

func number(n int32) string { return strconv.Itoa(int(n)) }

var budgetColumns = []column{nameColumn,
	col("Min Available", func(b *policyv1.PodDisruptionBudget) any { return amount(b.Spec.MinAvailable) }),
	col("Max Unavailable", func(b *policyv1.PodDisruptionBudget) any { return amount(b.Spec.MaxUnavailable) }),
	col("Allowed Disruptions", func(b *policyv1.PodDisruptionBudget) any { return number(b.Status.DisruptionsAllowed) }),
	ageColumn,
}

func amount(n *intstr.IntOrString) string {
	if n == nil {
		return "N/A"
	}
	return n.String()
}

var leaseColumns = []column{nameColumn,
	col("Holder", func(l *coordinationv1.Lease) any { return ptr.Deref(l.Spec.HolderIdentity, "") }),
	ageColumn,
}
