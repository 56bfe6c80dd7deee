package podspec

import v1 "k8s.io/api/core/v1"

// Cgroup is the kind of a manifest that is no pod but a cgroup outside of the pods: its name is the path below the
// root of the node's cgroups, its namespace is empty, and its pod-level request is memory.low. No source of pods has
// manifests of this kind.
const Cgroup = "Cgroup"

// OOMPreference is the annotation of such a manifest with ManagedOOMPreference= of the unit (systemd.resource-control),
// and OOMAvoid and OOMOmit are its values.
const (
	OOMPreference = "evictd.io/managed-oom-preference"
	OOMAvoid      = "avoid"
	OOMOmit       = "omit"
)

// IsCgroup says whether a manifest is that of a cgroup outside of the pods.
func IsCgroup(pod *v1.Pod) bool { return pod.Kind == Cgroup }
