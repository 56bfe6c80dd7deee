// Package podspec computes what Kubernetes derives from a pod's specification: the QoS
// class, defaulted requests, whether the pod is critical. The eviction manager, the OOM
// scores, admission and the playground's kubelet use the same rules.
package podspec
