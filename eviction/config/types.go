// Package config reads evictd's configuration, the kubelet's, and the kubelet's flags.
// It reads no files, flag sets or environment: callers pass text and get values,
// warnings and all faults.
package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind of the daemon's own configuration file.
const (
	APIVersion = "evictd.io/v1alpha1"
	Kind       = "EvictdConfiguration"
)

// EvictdConfiguration is the daemon's configuration file. The fields that
// KubeletConfiguration (kubelet.config.k8s.io/v1beta1) has too carry its names,
// types and meaning; the others are the flags of `evictd run`.
type EvictdConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	warnings []string // of what the file has and Load has left out

	// EvictionHard maps a signal to a quantity or a percentage, below which pods are
	// evicted at once; nil means the kubelet's defaults, empty means none.
	EvictionHard map[string]string `json:"evictionHard,omitzero"`
	// EvictionSoft is the same for thresholds that must be met for
	// EvictionSoftGracePeriod. As in the kubelet, memory.available is also watched in the pods'
	// cgroup, as allocatableMemory.available, for EvictionHard only.
	EvictionSoft map[string]string `json:"evictionSoft,omitempty"`
	// EvictionSoftGracePeriod maps each signal of EvictionSoft to a duration.
	EvictionSoftGracePeriod map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	// EvictionMinimumReclaim maps a signal to what a pass must free beyond the
	// threshold, quantity or percentage.
	EvictionMinimumReclaim map[string]string `json:"evictionMinimumReclaim,omitempty"`
	// EvictionMaxPodGracePeriod, seconds, bounds the grace of soft victims.
	EvictionMaxPodGracePeriod int32 `json:"evictionMaxPodGracePeriod,omitempty"`
	// EvictionPressureTransitionPeriod is how long a condition outlives its
	// cause; zero means 5m.
	EvictionPressureTransitionPeriod metav1.Duration `json:"evictionPressureTransitionPeriod,omitzero"`
	// MergeDefaultEvictionSettings fills what EvictionHard leaves out with the
	// defaults; nil means false.
	MergeDefaultEvictionSettings *bool `json:"mergeDefaultEvictionSettings,omitempty"`
	// LocalStorageCapacityIsolation enforces local-storage limits; nil means true.
	LocalStorageCapacityIsolation *bool `json:"localStorageCapacityIsolation,omitempty"`

	// SystemReserved and KubeReserved map resource names to quantities.
	SystemReserved map[string]string `json:"systemReserved,omitempty"`
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`
	// EnforceNodeAllocatable nil means [pods].
	EnforceNodeAllocatable []string `json:"enforceNodeAllocatable,omitempty"`
	// SystemReservedCgroup and KubeReservedCgroup are needed where
	// EnforceNodeAllocatable names them.
	SystemReservedCgroup string `json:"systemReservedCgroup,omitempty"`
	KubeReservedCgroup   string `json:"kubeReservedCgroup,omitempty"`

	// ImageGCHighThresholdPercent of the images' disk used begins the collection of
	// images at regular intervals; nil means 85.
	ImageGCHighThresholdPercent *int32 `json:"imageGCHighThresholdPercent,omitempty"`
	// ImageGCLowThresholdPercent ends it; nil means 80.
	ImageGCLowThresholdPercent *int32 `json:"imageGCLowThresholdPercent,omitempty"`
	// ImageMinimumGCAge is the minimum age of a removed image; zero means 2m.
	ImageMinimumGCAge metav1.Duration `json:"imageMinimumGCAge,omitzero"`
	// ImageMaximumGCAge is how long an image may be unused; zero is no bound.
	ImageMaximumGCAge metav1.Duration `json:"imageMaximumGCAge,omitzero"`
	// ImageGCPressureMode is deficit (the default): images are removed from a disk
	// under pressure until it lacks nothing; or all: every unused image, as with the
	// kubelet.
	ImageGCPressureMode string `json:"imageGCPressureMode,omitempty"`
	// ImageGCKeep are references of images that are never collected; one that ends
	// in * is a prefix.
	ImageGCKeep []string `json:"imageGCKeep,omitempty"`
	// MinimumContainerTTLDuration is how long ago a removed container must have exited;
	// it and the next two are flags of the kubelet.
	MinimumContainerTTLDuration metav1.Duration `json:"minimumContainerTTLDuration,omitzero"`
	// MaximumDeadContainersPerContainer are kept of each container of a pod; nil
	// means 1.
	MaximumDeadContainersPerContainer *int32 `json:"maximumDeadContainersPerContainer,omitempty"`
	// MaximumDeadContainers are kept on the node; nil means no limit.
	MaximumDeadContainers *int32 `json:"maximumDeadContainers,omitempty"`

	// NodeStatusUpdateFrequency is how often the Node is compared with its wanted
	// status; zero means 10s. Changes are written at once.
	NodeStatusUpdateFrequency metav1.Duration `json:"nodeStatusUpdateFrequency,omitzero"`

	// PodLogsDir is the directory of pods' logs; empty means /var/log/pods.
	PodLogsDir string `json:"podLogsDir,omitempty"`

	// EvictedPodTTL is how long the API server keeps pods that evictd has reported as evicted, in
	// native mode without a kubelet; zero is no bound.
	EvictedPodTTL metav1.Duration `json:"evictedPodTTL,omitzero"`
	// EvictedPodsPerOwner is how many of these it keeps of one controlling owner; zero is no bound.
	EvictedPodsPerOwner int32 `json:"evictedPodsPerOwner,omitempty"`

	// VictimsPerPass is one (the default), or enough: as many as cover what is
	// missing of a threshold and its minimum reclaim.
	VictimsPerPass string `json:"victimsPerPass,omitempty"`
	// EvictionPreferenceNamespaces are those in which the annotation evictd.io/eviction of a
	// pod, first or last, places it among pods of the same priority; empty means none.
	EvictionPreferenceNamespaces []string `json:"evictionPreferenceNamespaces,omitempty"`
	// WarningNamespaces are those in which the annotation evictd.io/notify of a pod counts: the pod
	// is warned before memory is short; empty means none.
	WarningNamespaces []string `json:"warningNamespaces,omitempty"`
	// WarningLead is how long before a hard threshold of memory or its own limit is reached a
	// container is warned; zero means 5s.
	WarningLead metav1.Duration `json:"warningLead,omitzero"`
	// WarningInterval is the least time between two warnings of a container; zero means 30s.
	WarningInterval metav1.Duration `json:"warningInterval,omitzero"`

	// MemoryReclaimBudget, a quantity, is how much memory is reclaimed in 10 s, by memory.reclaim of
	// cgroup v2, from pods above their request while a soft threshold of memory is met; empty means none.
	MemoryReclaimBudget string `json:"memoryReclaimBudget,omitempty"`
	// MemoryReclaimStep, a quantity, is how much is reclaimed from a pod at once; empty means 32Mi.
	MemoryReclaimStep string `json:"memoryReclaimStep,omitempty"`
	// MemoryReclaimAttempts bounds the writes to memory.reclaim in 10 s; zero means 16.
	MemoryReclaimAttempts int32 `json:"memoryReclaimAttempts,omitempty"`
	// MemoryThrottlePeriod is how long memory.high of cgroup v2 slows down the pod above its request whose growth
	// is about to cross a hard threshold of memory; zero means never.
	MemoryThrottlePeriod metav1.Duration `json:"memoryThrottlePeriod,omitzero"`

	// Outside are cgroups outside of the pods, as paths below cgroupRoot such as system.slice/batch.service, that are
	// evicted for a hard threshold of memory.available where the pods are not the cause; empty means none.
	Outside []string `json:"outside,omitempty"`

	// ContainerPressure is evict (the default), or restart: where one container of a victim of memory holds what
	// the pod uses above its request, it is ended in place of the pod, and the kubelet starts it again.
	ContainerPressure string `json:"containerPressure,omitempty"`
	// ContainerRestartGracePeriod is the longest time from SIGTERM to SIGKILL of such a container where a
	// soft threshold is the cause; zero means 10s.
	ContainerRestartGracePeriod metav1.Duration `json:"containerRestartGracePeriod,omitzero"`
	// ContainerRestartBackOff is how long a pod is evicted after one of its containers was restarted; zero
	// means 10m.
	ContainerRestartBackOff metav1.Duration `json:"containerRestartBackOff,omitzero"`

	// ResizeNamespaces are those in which the annotation evictd.io/resize of a pod counts: the memory limit of a
	// container that reaches it soon is raised by pods/resize. Other pods there have an event; empty means none.
	ResizeNamespaces []string `json:"resizeNamespaces,omitempty"`
	// ResizeInterval is the least time between two resizes of a container; zero means 5m.
	ResizeInterval metav1.Duration `json:"resizeInterval,omitzero"`

	// MemoryStallWindow is the time of which a threshold of memory.stall is a share, from 1s to 1m; zero means 10s.
	MemoryStallWindow metav1.Duration `json:"memoryStallWindow,omitzero"`
	// MemoryStallSome, a percentage, is the share of that time in which at least some tasks have to wait besides;
	// empty means the threshold's own.
	MemoryStallSome string `json:"memoryStallSome,omitempty"`

	// MemoryModel is workingSet (the default), available or reclaimAware.
	MemoryModel string `json:"memoryModel,omitempty"`

	Run `json:",inline"`
}

// Run holds the settings of `evictd run` under the names of its flags. Empty
// means the flag's default.
type Run struct {
	Mode                    string           `json:"mode,omitempty"`
	DryRun                  bool             `json:"dryRun,omitempty"`
	NodeName                string           `json:"nodeName,omitempty"`
	CgroupRoot              string           `json:"cgroupRoot,omitempty"`
	PodsCgroup              string           `json:"podsCgroup,omitempty"`
	PodManifests            string           `json:"podManifests,omitempty"`
	Kubeconfig              string           `json:"kubeconfig,omitempty"`
	Server                  string           `json:"server,omitempty"`
	CRIEndpoint             string           `json:"criEndpoint,omitempty"`
	RuncState               string           `json:"runcState,omitempty"`
	NodeFs                  string           `json:"nodefs,omitempty"`
	ImageFs                 string           `json:"imagefs,omitempty"`
	ContainerFs             string           `json:"containerfs,omitempty"`
	NodeStatusFile          string           `json:"nodeStatusFile,omitempty"`
	HousekeepingInterval    metav1.Duration  `json:"housekeepingInterval,omitzero"`
	HardEvictionGracePeriod *metav1.Duration `json:"hardEvictionGracePeriod,omitempty"`
	StatusAddress           string           `json:"statusAddress,omitempty"`
	StatusTLSCertFile       string           `json:"statusTLSCertFile,omitempty"`
	StatusTLSPrivateKeyFile string           `json:"statusTLSPrivateKeyFile,omitempty"`
	StatusClientCAFile      string           `json:"statusClientCAFile,omitempty"`
	AgentAddress            string           `json:"agentAddress,omitempty"`
	StateDir                string           `json:"stateDir,omitempty"`
	// KernelMemcgNotification has the kernel notify of memory usage, by usage thresholds of cgroup
	// v1 or by memory.high of the pods' cgroup of v2; nil means true.
	KernelMemcgNotification *bool  `json:"kernelMemcgNotification,omitempty"`
	RuntimeDir              string `json:"runtimeDir,omitempty"`
	// MemoryHighTripwire sets memory.high of cgroup v2 just below a hard threshold of
	// memory: the kernel throttles pods there, and notifies.
	MemoryHighTripwire bool `json:"memoryHighTripwire,omitempty"`
	// OOMScoreAdj sets the oom_score_adj of containers' processes as the kubelet does; nil
	// means in native mode, where no kubelet does.
	OOMScoreAdj *bool `json:"oomScoreAdj,omitempty"`
	// SoftEviction is api, request or direct: soft victims are evicted by the Eviction API, which respects disruption
	// budgets, by an EvictionRequest of lifecycle.k8s.io, which is withdrawn where its threshold is not met any more,
	// or at once; empty means direct in native mode, api in others.
	SoftEviction         string          `json:"softEviction,omitempty"`
	SoftEvictionDeadline metav1.Duration `json:"softEvictionDeadline,omitzero"`
	// NodeMemory, a quantity, makes the node a virtual one of that much memory,
	// of which the pods' processes are the only users, measured through procfs.
	NodeMemory string `json:"nodeMemory,omitempty"`
}
