package embeddedapi

import (
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	content "k8s.io/apimachinery/pkg/util/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/embeddedapi/store"
	"github.com/evictd/evictd/internal/embeddedapi/validation"
)

// controllerKinds are what kube-controller-manager and a kubelet read and write beside the kinds
// of a scheduler. They are stored, with defaults.
func controllerKinds() []*kind {
	batch, resources, discovery := batchv1.SchemeGroupVersion, resourceapi.SchemeGroupVersion, discoveryv1.SchemeGroupVersion
	return []*kind{
		{GroupVersionKind: core.WithKind("ConfigMap"), resource: "configmaps", singular: "configmap", short: []string{"cm"}, namespaced: true, admit: admitConfigMap},
		{GroupVersionKind: core.WithKind("Secret"), resource: "secrets", singular: "secret", namespaced: true, admit: admitSecret, fields: secretFields},
		{GroupVersionKind: core.WithKind("ServiceAccount"), resource: "serviceaccounts", singular: "serviceaccount", short: []string{"sa"}, answers: true, namespaced: true},
		{GroupVersionKind: core.WithKind("LimitRange"), resource: "limitranges", singular: "limitrange", short: []string{"limits"}, namespaced: true, upsert: true, admit: admitLimitRange},
		{GroupVersionKind: core.WithKind("ResourceQuota"), resource: "resourcequotas", singular: "resourcequota", short: []string{"quota"}, answers: true, namespaced: true, status: true,
			admit: admitQuota},
		{GroupVersionKind: core.WithKind("Endpoints"), resource: "endpoints", singular: "endpoints", short: []string{"ep"}, namespaced: true, upsert: true},
		{GroupVersionKind: core.WithKind("PodTemplate"), resource: "podtemplates", singular: "podtemplate", answers: true, namespaced: true, admit: admitPodTemplate},
		{GroupVersionKind: discovery.WithKind("EndpointSlice"), resource: "endpointslices", singular: "endpointslice", namespaced: true, admit: admitEndpointSlice},
		{GroupVersionKind: apps.WithKind("ControllerRevision"), resource: "controllerrevisions", singular: "controllerrevision", namespaced: true, admit: checked(validation.ControllerRevision)},
		{GroupVersionKind: apps.WithKind("Deployment"), resource: "deployments", singular: "deployment", short: []string{"deploy"}, namespaced: true, status: true, fixed: []string{"labels"}, generation: true, annotations: true,
			admit: admitWorkload, columns: deploymentColumns},
		{GroupVersionKind: batch.WithKind("Job"), resource: "jobs", singular: "job", namespaced: true, status: true, generation: true, orphans: true,
			admit: admitJob, fields: jobFields, columns: jobColumns},
		{GroupVersionKind: batch.WithKind("CronJob"), resource: "cronjobs", singular: "cronjob", short: []string{"cj"}, namespaced: true, status: true, generation: true, admit: admitCronJob},
		{GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), resource: "horizontalpodautoscalers", singular: "horizontalpodautoscaler",
			short: []string{"hpa"}, namespaced: true, status: true, generation: true, admit: admitAutoscaler},
		{GroupVersionKind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), resource: "networkpolicies", singular: "networkpolicy", short: []string{"netpol"},
			namespaced: true, generation: true, admit: checked(validation.NetworkPolicy)},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("VolumeAttributesClass"), resource: "volumeattributesclasses", singular: "volumeattributesclass", short: []string{"vac"}, answers: true,
			admit: checked(validation.VolumeAttributesClass)},
		{GroupVersionKind: resources.WithKind("DeviceClass"), resource: "deviceclasses", singular: "deviceclass", answers: true, generation: true, admit: checked(validation.DeviceClass)},
		{GroupVersionKind: resources.WithKind("DeviceTaintRule"), resource: "devicetaintrules", singular: "devicetaintrule", versioned: true, status: true, fixed: allMeta, generation: true, admit: admitTaintRule},
		{GroupVersionKind: resources.WithKind("ResourceClaim"), resource: "resourceclaims", singular: "resourceclaim", answers: true, namespaced: true, status: true, fixed: allMeta, admit: admitResourceClaim},
		{GroupVersionKind: resources.WithKind("ResourceClaimTemplate"), resource: "resourceclaimtemplates", singular: "resourceclaimtemplate", answers: true, namespaced: true, admit: checked(validation.ResourceClaimTemplate)},
		{GroupVersionKind: resources.WithKind("ResourceSlice"), resource: "resourceslices", singular: "resourceslice", answers: true, generation: true, admit: admitResourceSlice, fields: sliceFields},
	}
}

var (
	secretFields = fieldSet{"type": field(func(s *v1.Secret) string { return string(s.Type) })}
	jobFields    = fieldSet{"status.successful": field(func(j *batchv1.Job) string { return number(j.Status.Succeeded) })}
	sliceFields  = fieldSet{
		"spec.nodeName": field(func(s *resourceapi.ResourceSlice) string { return ptr.Deref(s.Spec.NodeName, "") }),
		"spec.driver":   field(func(s *resourceapi.ResourceSlice) string { return s.Spec.Driver }),
	}
)

var deploymentColumns = []column{nameColumn,
	col("Ready", func(d *appsv1.Deployment) any {
		return number(d.Status.ReadyReplicas) + "/" + number(ptr.Deref(d.Spec.Replicas, 0))
	}),
	col("Up-to-date", func(d *appsv1.Deployment) any { return number(d.Status.UpdatedReplicas) }),
	col("Available", func(d *appsv1.Deployment) any { return number(d.Status.AvailableReplicas) }),
	ageColumn,
}

var jobColumns = []column{nameColumn,
	col("Completions", func(j *batchv1.Job) any {
		return number(j.Status.Succeeded) + "/" + number(ptr.Deref(j.Spec.Completions, 1))
	}),
	ageColumn,
}

// admitSecret takes the data that a client wrote as text, and keeps immutable secrets.
func admitSecret(_ *API, object, old store.Object) utilvalidation.ErrorList {
	secret := object.(*v1.Secret)
	for name, text := range secret.StringData {
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[name] = []byte(text)
	}
	secret.StringData = nil
	faults := append(checkKeys("data", slices.Collect(maps.Keys(secret.Data))), validation.SecretData(secret)...)
	before, ok := old.(*v1.Secret)
	if !ok {
		return faults
	}
	faults = append(faults, same("type", secret.Type, before.Type)...)
	if ptr.Deref(before.Immutable, false) {
		faults = append(faults, unchanged("immutable", apiequality.Semantic.DeepEqual(secret.Immutable, before.Immutable))...)
		faults = append(faults, unchanged("data", apiequality.Semantic.DeepEqual(secret.Data, before.Data))...)
	}
	return faults
}

func admitConfigMap(_ *API, object, old store.Object) utilvalidation.ErrorList {
	now := object.(*v1.ConfigMap)
	faults := append(checkKeys("data", slices.Collect(maps.Keys(now.Data))), checkKeys("binaryData", slices.Collect(maps.Keys(now.BinaryData)))...)
	faults = append(faults, validation.ConfigMapSize(now)...)
	for key := range admission.InOrder(now.BinaryData) {
		if _, twice := now.Data[key]; twice {
			faults = append(faults, utilvalidation.Invalid(utilvalidation.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
	}
	if before, ok := old.(*v1.ConfigMap); ok && ptr.Deref(before.Immutable, false) {
		faults = append(faults, unchanged("immutable", apiequality.Semantic.DeepEqual(now.Immutable, before.Immutable))...)
		faults = append(faults, unchanged("data", apiequality.Semantic.DeepEqual(now.Data, before.Data))...)
		faults = append(faults, unchanged("binaryData", apiequality.Semantic.DeepEqual(now.BinaryData, before.BinaryData))...)
	}
	return faults
}

// checkKeys refuses keys that are no names of files, as IsConfigMapKey of apimachinery says.
func checkKeys(field string, keys []string) (faults utilvalidation.ErrorList) {
	slices.Sort(keys)
	for _, key := range keys {
		for _, why := range content.IsConfigMapKey(key) {
			faults = append(faults, utilvalidation.Invalid(utilvalidation.NewPath(field).Key(key), key, why))
		}
	}
	return faults
}

// unchanged refuses a change of a field of an immutable object.
func unchanged(name string, holds bool) utilvalidation.ErrorList {
	if holds {
		return nil
	}
	return utilvalidation.ErrorList{utilvalidation.Forbidden(utilvalidation.NewPath(name), "field is immutable when `immutable` is set")}
}

// admitTaintRule dates a taint that is new or whose effect changes, as Kubernetes' strategy of device taint rules does.
func admitTaintRule(_ *API, object, old store.Object) utilvalidation.ErrorList {
	rule := object.(*resourceapi.DeviceTaintRule)
	taint, stays := &rule.Spec.Taint, true
	before, changed := old.(*resourceapi.DeviceTaintRule)
	if changed {
		was := before.Spec.Taint
		stays = taint.Effect == was.Effect || !taint.TimeAdded.Equal(was.TimeAdded)
	} else {
		rule.Status = resourceapi.DeviceTaintRuleStatus{}
	}
	if taint.TimeAdded == nil || !stays {
		taint.TimeAdded = new(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	return validation.DeviceTaintRule(rule, before)
}

// admitEndpointSlice counts the changes of everything but metadata, and those of the labels.
func admitEndpointSlice(_ *API, object, old store.Object) utilvalidation.ErrorList {
	slice, before := object.(*discoveryv1.EndpointSlice), &discoveryv1.EndpointSlice{}
	if old != nil {
		before = old.(*discoveryv1.EndpointSlice)
	}
	for i := range slice.Endpoints {
		slice.Endpoints[i].DeprecatedTopology = nil // v1 does not write it
	}
	slice.Generation = before.Generation
	if old == nil || !apiequality.Semantic.DeepEqual([]any{slice.Endpoints, slice.Ports, slice.AddressType, slice.Labels}, []any{before.Endpoints, before.Ports, before.AddressType, before.Labels}) {
		slice.Generation++
	}
	if old == nil {
		before = nil
	}
	return validation.EndpointSlice(slice, before)
}

// admitResourceSlice removes the fields of alpha features of Kubernetes.
func admitResourceSlice(_ *API, object, old store.Object) utilvalidation.ErrorList {
	slice := object.(*resourceapi.ResourceSlice)
	slice.Spec.PartitionTypeAttribute, slice.Spec.SkipNodeOperations = nil, nil
	for i := range slice.Spec.Devices {
		device := &slice.Spec.Devices[i]
		device.NodeAllocatableResources = nil
		for j := range device.ConsumesCounters {
			device.ConsumesCounters[j].CompatibilityGroups = nil
		}
		for name, a := range device.Attributes {
			a.BoolValues, a.IntValues, a.StringValues, a.VersionValues = nil, nil, nil, nil
			device.Attributes[name] = a
		}
	}
	before, _ := old.(*resourceapi.ResourceSlice)
	return validation.ResourceSlice(slice, before)
}

// admitResourceClaim admits a claim of devices, which has no status at first.
func admitResourceClaim(_ *API, object, old store.Object) utilvalidation.ErrorList {
	claim := object.(*resourceapi.ResourceClaim)
	before, changed := old.(*resourceapi.ResourceClaim)
	if !changed {
		claim.Status = resourceapi.ResourceClaimStatus{}
	}
	return validation.ResourceClaim(claim, before)
}

// admitPodTemplate counts the changes of the template.
func admitPodTemplate(_ *API, object, old store.Object) utilvalidation.ErrorList {
	template := object.(*v1.PodTemplate)
	if before, changed := old.(*v1.PodTemplate); !changed || !apiequality.Semantic.DeepEqual(template.Template, before.Template) {
		template.Generation++
	}
	return validation.PodTemplate(template)
}

func admitAutoscaler(_ *API, object, old store.Object) utilvalidation.ErrorList {
	autoscaler := object.(*autoscalingv2.HorizontalPodAutoscaler)
	before, changed := old.(*autoscalingv2.HorizontalPodAutoscaler)
	if !changed {
		autoscaler.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	}
	return validation.Autoscaler(autoscaler, before)
}

// jobLabels begins the names of labels that say which job a pod is of.
const jobLabels = "batch.kubernetes.io/"

// admitJob labels the pods of a new job with its uid and selects them by it, as
// generateSelector of Kubernetes' job strategy does.
func admitJob(a *API, object, old store.Object) utilvalidation.ErrorList {
	job := object.(*batchv1.Job)
	if before, ok := old.(*batchv1.Job); ok {
		return append(checkSelector(job.Spec.Selector, job.Spec.Template.Labels, utilvalidation.NewPath("spec")), checkJobChange(job, before)...)
	}
	if !ptr.Deref(job.Spec.ManualSelector, false) {
		labels := maps.Clone(job.Spec.Template.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		for _, prefix := range []string{"", jobLabels} {
			labels[prefix+"job-name"], labels[prefix+"controller-uid"] = job.Name, string(job.UID)
		}
		job.Spec.Template.Labels = labels
		if len(job.Labels) == 0 {
			job.Labels = maps.Clone(labels)
		}
		job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: string(job.UID)}}
	}
	return slices.Concat(checkHostname(job), checkSelector(job.Spec.Selector, job.Spec.Template.Labels, utilvalidation.NewPath("spec")), admitWorkload(a, object, nil))
}

// checkHostname checks the name of the host of an indexed job's last pod.
func checkHostname(job *batchv1.Job) utilvalidation.ErrorList {
	completions := ptr.Deref(job.Spec.Completions, 0)
	if ptr.Deref(job.Spec.CompletionMode, "") != batchv1.IndexedCompletion || completions <= 0 {
		return nil
	}
	for _, why := range content.IsDNS1123Label(fmt.Sprintf("%s-%d", job.Name, completions-1)) {
		return utilvalidation.ErrorList{utilvalidation.Invalid(utilvalidation.NewPath("metadata", "name"), job.Name, "gives its pods no name of a host: "+why)}
	}
	return nil
}

// admitCronJob bounds the name, to which the names of jobs add the minute.
func admitCronJob(a *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	const longest = content.DNS1035LabelMaxLength - len("-1234567890")
	if name := object.GetName(); old == nil && len(name) > longest {
		faults = append(faults, utilvalidation.Invalid(utilvalidation.NewPath("metadata", "name"), name, content.MaxLenError(longest)))
	}
	return append(faults, admitWorkload(a, object, old)...)
}

// checkJobChange keeps what a job was started with.
func checkJobChange(job, before *batchv1.Job) utilvalidation.ErrorList {
	path, faults := utilvalidation.NewPath("spec"), checkWorkload(job)
	for name, values := range admission.InOrder(map[string][2]any{"selector": {job.Spec.Selector, before.Spec.Selector}, "template": {job.Spec.Template, before.Spec.Template},
		"backoffLimitPerIndex": {job.Spec.BackoffLimitPerIndex, before.Spec.BackoffLimitPerIndex},
		"podFailurePolicy":     {job.Spec.PodFailurePolicy, before.Spec.PodFailurePolicy}, "successPolicy": {job.Spec.SuccessPolicy, before.Spec.SuccessPolicy}, "managedBy": {job.Spec.ManagedBy, before.Spec.ManagedBy}, "completionMode": {job.Spec.CompletionMode, before.Spec.CompletionMode}}) {
		suspended := ptr.Deref(before.Spec.Suspend, false) && before.Status.StartTime == nil
		if !apiequality.Semantic.DeepEqual(values[0], values[1]) && (name != "template" || !suspended) {
			faults = append(faults, utilvalidation.Invalid(path.Child(name), values[0], "field is immutable"))
		}
	}
	now, was := job.Spec.Completions, before.Spec.Completions
	switch indexed := ptr.Deref(job.Spec.CompletionMode, "") == batchv1.IndexedCompletion; {
	case apiequality.Semantic.DeepEqual(now, was) || indexed && now == nil:
	case !indexed:
		faults = append(faults, utilvalidation.Invalid(path.Child("completions"), now, "field is immutable"))
	case *now != ptr.Deref(job.Spec.Parallelism, 0):
		faults = append(faults, utilvalidation.Invalid(path.Child("completions"), *now, "can only be modified in tandem with spec.parallelism"))
	}
	return faults
}
