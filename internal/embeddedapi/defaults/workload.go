package defaults

import (
	"maps"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func workloadDefaults(s *Setter) {
	percent := intstr.FromString("25%")
	add(s, func(o *appsv1.DeploymentSpec) {
		unset(&o.Replicas, 1)
		zero(&o.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
		if o.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
			unset(&o.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
			unset(&o.Strategy.RollingUpdate.MaxUnavailable, percent)
			unset(&o.Strategy.RollingUpdate.MaxSurge, percent)
		}
		unset(&o.RevisionHistoryLimit, 10)
		unset(&o.ProgressDeadlineSeconds, 600)
	})
	add(s, func(o *appsv1.DaemonSetSpec) {
		zero(&o.UpdateStrategy.Type, appsv1.RollingUpdateDaemonSetStrategyType)
		if o.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			unset(&o.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
			unset(&o.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
			unset(&o.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
		}
		unset(&o.RevisionHistoryLimit, 10)
	})
	add(s, func(o *appsv1.StatefulSetSpec) {
		zero(&o.PodManagementPolicy, appsv1.OrderedReadyPodManagement)
		if o.UpdateStrategy.Type == "" {
			o.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			unset(&o.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateStatefulSetStrategy{})
		}
		if r := o.UpdateStrategy.RollingUpdate; r != nil && o.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
			unset(&r.Partition, 0)
			unset(&r.MaxUnavailable, intstr.FromInt32(1))
		}
		unset(&o.PersistentVolumeClaimRetentionPolicy, appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{})
		zero(&o.PersistentVolumeClaimRetentionPolicy.WhenDeleted, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
		zero(&o.PersistentVolumeClaimRetentionPolicy.WhenScaled, appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
		unset(&o.Replicas, 1)
		unset(&o.RevisionHistoryLimit, 10)
	})
	add(s, func(o *appsv1.ReplicaSetSpec) { unset(&o.Replicas, 1) })
	add(s, func(o *batchv1.Job) {
		if len(o.Labels) == 0 {
			o.Labels = maps.Clone(o.Spec.Template.Labels)
		}
		setJob(&o.Spec)
	})
	add(s, func(o *batchv1.CronJobSpec) {
		zero(&o.ConcurrencyPolicy, batchv1.AllowConcurrent)
		unset(&o.Suspend, false)
		unset(&o.SuccessfulJobsHistoryLimit, 3)
		unset(&o.FailedJobsHistoryLimit, 1)
	})
	add(s, func(o *batchv1.PodFailurePolicyOnPodConditionsPattern) { zero(&o.Status, v1.ConditionTrue) })
}

func setJob(o *batchv1.JobSpec) {
	if o.Completions == nil && o.Parallelism == nil {
		o.Completions = new(int32(1))
	}
	unset(&o.Parallelism, 1)
	retries, replace := int32(6), batchv1.TerminatingOrFailed
	if o.BackoffLimitPerIndex != nil {
		retries = math.MaxInt32
	}
	if o.PodFailurePolicy != nil {
		replace = batchv1.Failed
	}
	unset(&o.BackoffLimit, retries)
	unset(&o.CompletionMode, batchv1.NonIndexedCompletion)
	unset(&o.Suspend, false)
	unset(&o.PodReplacementPolicy, replace)
	unset(&o.ManualSelector, false)
}

func otherDefaults(s *Setter) {
	add(s, func(o *schedulingv1.PriorityClass) { unset(&o.PreemptionPolicy, v1.PreemptLowerPriority) })
	add(s, func(o *storagev1.StorageClass) {
		unset(&o.ReclaimPolicy, v1.PersistentVolumeReclaimDelete)
		unset(&o.VolumeBindingMode, storagev1.VolumeBindingImmediate)
	})
	add(s, func(o *storagev1.CSIDriverSpec) {
		unset(&o.AttachRequired, true)
		for _, field := range []**bool{&o.PodInfoOnMount, &o.StorageCapacity, &o.RequiresRepublish, &o.SELinuxMount, &o.PreventPodSchedulingIfMissing} {
			unset(field, false)
		}
		unset(&o.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
		if len(o.VolumeLifecycleModes) == 0 {
			o.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
		}
	})
	add(s, func(o *discoveryv1.EndpointPort) {
		unset(&o.Name, "")
		unset(&o.Protocol, v1.ProtocolTCP)
	})
	add(s, func(o *networkingv1.NetworkPolicySpec) {
		if len(o.PolicyTypes) > 0 {
			return
		}
		o.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(o.Egress) > 0 {
			o.PolicyTypes = append(o.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	})
	add(s, func(o *networkingv1.NetworkPolicyPort) { unset(&o.Protocol, v1.ProtocolTCP) })
	add(s, setAutoscaler)
	add(s, func(o *resourceapi.ExactDeviceRequest) { setDevices(&o.AllocationMode, &o.Count) })
	add(s, func(o *resourceapi.DeviceSubRequest) { setDevices(&o.AllocationMode, &o.Count) })
	add(s, func(o *resourceapi.DeviceToleration) { zero(&o.Operator, resourceapi.DeviceTolerationOpEqual) })
}

func setAutoscaler(o *autoscalingv2.HorizontalPodAutoscalerSpec) {
	unset(&o.MinReplicas, 1)
	if len(o.Metrics) == 0 {
		o.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: v1.ResourceCPU,
			Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(80))}}}}
	}
	if o.Behavior == nil {
		return
	}
	unset(&o.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{})
	unset(&o.Behavior.ScaleUp.StabilizationWindowSeconds, 0)
	unset(&o.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{})
	double := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	for rules, policies := range map[*autoscalingv2.HPAScalingRules][]autoscalingv2.HPAScalingPolicy{
		o.Behavior.ScaleUp: {{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, double}, o.Behavior.ScaleDown: {double},
	} {
		unset(&rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect)
		if rules.Policies == nil {
			rules.Policies = policies
		}
	}
}

func setDevices(mode *resourceapi.DeviceAllocationMode, count *int64) {
	zero(mode, resourceapi.DeviceAllocationModeExactCount)
	if *mode == resourceapi.DeviceAllocationModeExactCount {
		zero(count, 1)
	}
}

func setService(o *v1.Service) {
	spec := &o.Spec
	zero(&spec.Type, v1.ServiceTypeClusterIP)
	zero(&spec.SessionAffinity, v1.ServiceAffinityNone)
	switch c := spec.SessionAffinityConfig; {
	case spec.SessionAffinity == v1.ServiceAffinityNone:
		spec.SessionAffinityConfig = nil
	case spec.SessionAffinity == v1.ServiceAffinityClientIP && (c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil):
		spec.SessionAffinityConfig = &v1.SessionAffinityConfig{ClientIP: &v1.ClientIPConfig{TimeoutSeconds: new(v1.DefaultClientIPServiceAffinitySeconds)}}
	}
	for i := range spec.Ports {
		port := &spec.Ports[i]
		zero(&port.Protocol, v1.ProtocolTCP)
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	external := spec.Type == v1.ServiceTypeLoadBalancer || spec.Type == v1.ServiceTypeNodePort
	if external || spec.Type == v1.ServiceTypeClusterIP {
		unset(&spec.InternalTrafficPolicy, v1.ServiceInternalTrafficPolicyCluster)
	}
	if external || spec.Type == v1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		zero(&spec.ExternalTrafficPolicy, v1.ServiceExternalTrafficPolicyCluster)
	}
	if spec.Type == v1.ServiceTypeLoadBalancer {
		unset(&spec.AllocateLoadBalancerNodePorts, true)
	}
}
