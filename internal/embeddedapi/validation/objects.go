package validation

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/admission"
)

// Lease checks the durations of a lease.
func Lease(l *coordinationv1.Lease) (faults field.ErrorList) {
	at := field.NewPath("spec")
	if seconds := l.Spec.LeaseDurationSeconds; seconds != nil && *seconds <= 0 {
		faults = append(faults, field.Invalid(at.Child("leaseDurationSeconds"), *seconds, "must be greater than 0"))
	}
	return append(faults, counts(at, count{"leaseTransitions", l.Spec.LeaseTransitions})...)
}

// ControllerRevision checks a revision, whose data do not change.
func ControllerRevision(r, before *appsv1.ControllerRevision) field.ErrorList {
	faults, at := notNegative(r.Revision, field.NewPath("revision")), field.NewPath("data")
	if before != nil {
		return append(faults, same(r.Data, before.Data, at)...)
	}
	var data map[string]any
	if err := json.Unmarshal(r.Data.Raw, &data); err != nil || data == nil {
		faults = append(faults, field.Required(at, "data must be a valid JSON object"))
	}
	return faults
}

// PodTemplate checks a template that is an object.
func PodTemplate(t *v1.PodTemplate) field.ErrorList {
	return Template(&t.Template, field.NewPath("template"))
}

// ReplicationController checks a controller of the core group.
func ReplicationController(c *v1.ReplicationController) field.ErrorList {
	at := field.NewPath("spec")
	faults := counts(at, count{"replicas", c.Spec.Replicas}, count{"minReadySeconds", &c.Spec.MinReadySeconds})
	template := at.Child("template")
	if len(c.Spec.Selector) == 0 {
		faults = append(faults, field.Required(at.Child("selector"), ""))
	}
	if c.Spec.Template == nil {
		return append(faults, field.Required(template, ""))
	}
	for name, value := range c.Spec.Selector {
		if has, found := c.Spec.Template.Labels[name]; !found || has != value {
			faults = append(faults, field.Invalid(template.Child("metadata", "labels"), c.Spec.Template.Labels, "`selector` does not match template `labels`"))
			break
		}
	}
	return slices.Concat(faults, Template(c.Spec.Template, template), alwaysRestarts(&c.Spec.Template.Spec, template))
}

// RuntimeClass checks the name of the handler and where its pods run.
func RuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	faults := named(c.Handler, field.NewPath("handler"), validation.IsDNS1123Label)
	if c.Scheduling == nil {
		return faults
	}
	at := field.NewPath("scheduling")
	return slices.Concat(faults, admission.CheckLabels(c.Scheduling.NodeSelector, at.Child("nodeSelector")), Tolerations(c.Scheduling.Tolerations, at.Child("tolerations")))
}

// checkCronJob checks when the jobs are made.
func checkCronJob(spec *batchv1.CronJobSpec, at *field.Path) field.ErrorList {
	faults := append(checkSchedule(spec.Schedule, at.Child("schedule")), supported(spec.ConcurrencyPolicy, at.Child("concurrencyPolicy"), batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent)...)
	faults = append(faults, notNegative(ptr.Deref(spec.StartingDeadlineSeconds, 0), at.Child("startingDeadlineSeconds"))...)
	faults = append(faults, counts(at, count{"successfulJobsHistoryLimit", spec.SuccessfulJobsHistoryLimit}, count{"failedJobsHistoryLimit", spec.FailedJobsHistoryLimit})...)
	if zone := spec.TimeZone; zone != nil {
		if _, err := time.LoadLocation(*zone); err != nil || *zone == "" || strings.EqualFold(*zone, "Local") {
			faults = append(faults, field.Invalid(at.Child("timeZone"), *zone, "unknown time zone"))
		}
	}
	job := at.Child("jobTemplate", "spec")
	if ptr.Deref(spec.JobTemplate.Spec.ManualSelector, false) {
		faults = append(faults, field.NotSupported(job.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	if spec.JobTemplate.Spec.Selector != nil {
		faults = append(faults, field.Invalid(job.Child("selector"), spec.JobTemplate.Spec.Selector, "`selector` will be auto-generated"))
	}
	return faults
}

// columns are the fields of a schedule, with the least and the most value, and the names of values.
var columns = []struct {
	least, most int
	names       string
}{{0, 59, ""}, {0, 23, ""}, {1, 31, ""}, {1, 12, "jan feb mar apr may jun jul aug sep oct nov dec"}, {0, 6, "sun mon tue wed thu fri sat"}}

// checkSchedule checks the five fields of crontab(5), or a name of them.
func checkSchedule(schedule string, at *field.Path) field.ErrorList {
	wrong := field.ErrorList{field.Invalid(at, schedule, "must have the five fields of crontab, or be a name such as @hourly")}
	if every, interval := strings.CutPrefix(schedule, "@every "); interval {
		if _, err := time.ParseDuration(every); err != nil {
			return wrong
		}
		return nil
	}
	fields := strings.Fields(schedule)
	switch {
	case schedule == "":
		return given(schedule, at)
	case slices.Contains([]string{"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}, schedule):
		return nil
	case len(fields) != len(columns):
		return wrong
	}
	for i, text := range fields {
		for part := range strings.SplitSeq(text, ",") {
			if !isRange(part, columns[i].least, columns[i].most, strings.Fields(columns[i].names)) {
				return wrong
			}
		}
	}
	return nil
}

// isRange says that a text is a value, a range of them or all of them, with or without a step.
func isRange(text string, least, most int, names []string) bool {
	text, step, stepped := strings.Cut(text, "/")
	if n, err := strconv.Atoi(step); stepped && (err != nil || n <= 0) {
		return false
	}
	if text == "*" || text == "?" {
		return true
	}
	value := func(text string) int {
		if i := slices.Index(names, strings.ToLower(text)); i >= 0 {
			return least + i
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return -1
		}
		return n
	}
	from, to, ranged := strings.Cut(text, "-")
	first, last := value(from), value(from)
	if ranged {
		last = value(to)
	}
	return least <= first && first <= last && last <= most
}

// EndpointSlice checks the addresses and the ports of a slice, and that the type of its addresses stays.
func EndpointSlice(s, before *discoveryv1.EndpointSlice) (faults field.ErrorList) {
	faults = supported(s.AddressType, field.NewPath("addressType"), discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	for i, endpoint := range s.Endpoints {
		at := field.NewPath("endpoints").Index(i)
		if len(endpoint.Addresses) == 0 {
			faults = append(faults, field.Required(at.Child("addresses"), "must contain at least 1 address"))
		}
		for j, address := range endpoint.Addresses {
			if at := at.Child("addresses").Index(j); s.AddressType == discoveryv1.AddressTypeFQDN {
				faults = append(faults, valid(address, at, validation.IsDNS1123Subdomain(address))...)
			} else if fault := checkEndpointIP(address, at); fault != nil || isIPv6(address) != (s.AddressType == discoveryv1.AddressTypeIPv6) {
				faults = append(faults, field.Invalid(at, address, "must be an address of the type of the slice, of another host"))
			}
		}
		if endpoint.NodeName != nil {
			faults = append(faults, valid(*endpoint.NodeName, at.Child("nodeName"), nameOfObject(*endpoint.NodeName))...)
		}
		if endpoint.Hostname != nil {
			faults = append(faults, label(*endpoint.Hostname, at.Child("hostname"))...)
		}
	}
	seen := map[string]bool{}
	for i, port := range s.Ports {
		at, name := field.NewPath("ports").Index(i), ptr.Deref(port.Name, "")
		if name != "" {
			faults = append(faults, label(name, at.Child("name"))...)
		}
		faults = append(faults, once(seen, name, at.Child("name"))...)
		faults = append(faults, optional(port.Protocol, at.Child("protocol"), v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)...)
	}
	if before != nil {
		faults = append(faults, same(s.AddressType, before.AddressType, field.NewPath("addressType"))...)
	}
	return faults
}

// quotaScopes are the known scopes of quotas.
var quotaScopes = []v1.ResourceQuotaScope{v1.ResourceQuotaScopeTerminating, v1.ResourceQuotaScopeNotTerminating, v1.ResourceQuotaScopeBestEffort,
	v1.ResourceQuotaScopeNotBestEffort, v1.ResourceQuotaScopePriorityClass, v1.ResourceQuotaScopeCrossNamespacePodAffinity}

// Quota checks the limits of a quota, and the scopes that they are of.
func Quota(spec *v1.ResourceQuotaSpec) (faults field.ErrorList) {
	at := field.NewPath("spec")
	faults = checkQuotaAmounts(spec.Hard, at.Child("hard"))
	scopes := at.Child("scopes")
	for _, scope := range spec.Scopes {
		if !slices.Contains(quotaScopes, scope) {
			faults = append(faults, field.Invalid(scopes, spec.Scopes, "unsupported scope"))
		}
	}
	faults = append(faults, checkConflict(spec.Scopes, scopes)...)
	if spec.ScopeSelector == nil {
		return faults
	}
	var all []v1.ResourceQuotaScope
	of := at.Child("scopeSelector", "matchExpressions")
	for _, required := range spec.ScopeSelector.MatchExpressions {
		all = append(all, required.ScopeName)
		if !slices.Contains(quotaScopes, required.ScopeName) {
			faults = append(faults, field.Invalid(of.Child("scopeName"), required.ScopeName, "unsupported scope"))
		} else if required.ScopeName != v1.ResourceQuotaScopePriorityClass && required.Operator != v1.ScopeSelectorOpExists {
			faults = append(faults, field.Invalid(of.Child("operator"), required.Operator, "must be 'Exists' but for the scope PriorityClass"))
		}
		switch required.Operator {
		case v1.ScopeSelectorOpIn, v1.ScopeSelectorOpNotIn:
			if len(required.Values) == 0 {
				faults = append(faults, field.Required(of.Child("values"), "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"))
			}
		case v1.ScopeSelectorOpExists, v1.ScopeSelectorOpDoesNotExist:
			if len(required.Values) > 0 {
				faults = append(faults, field.Invalid(of.Child("values"), required.Values, "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"))
			}
		default:
			faults = append(faults, field.Invalid(of.Child("operator"), required.Operator, "not a valid selector operator"))
		}
	}
	return append(faults, checkConflict(all, of)...)
}

func checkQuotaAmounts(list v1.ResourceList, of *field.Path) (faults field.ErrorList) {
	for name, amount := range admission.InOrder(list) {
		at := of.Key(string(name))
		faults = append(faults, checkResourceName(name, at)...)
		if !strings.Contains(string(name), "/") && !isCounted(name) {
			faults = append(faults, field.Invalid(at, name, "must be a standard resource for quota"))
		}
		faults = append(faults, checkAmount(name, amount, at)...)
	}
	return faults
}

// checkConflict refuses scopes of which no pod has both.
func checkConflict(scopes []v1.ResourceQuotaScope, at *field.Path) (faults field.ErrorList) {
	for _, pair := range [][2]v1.ResourceQuotaScope{{v1.ResourceQuotaScopeBestEffort, v1.ResourceQuotaScopeNotBestEffort}, {v1.ResourceQuotaScopeTerminating, v1.ResourceQuotaScopeNotTerminating}} {
		if slices.Contains(scopes, pair[0]) && slices.Contains(scopes, pair[1]) {
			faults = append(faults, field.Invalid(at, scopes, "conflicting scopes"))
		}
	}
	return faults
}

// isCounted says that a quota limits a resource of Kubernetes.
func isCounted(name v1.ResourceName) bool {
	name = v1.ResourceName(strings.TrimPrefix(string(name), v1.DefaultResourceRequestsPrefix))
	return name != v1.ResourceStorage && len(checkResourceName(name, nil)) == 0 || name == v1.ResourceStorage
}
