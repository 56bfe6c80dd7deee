package validation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// jobStatus checks a change of the status of a job. Most rules hold only where what they are about has changed.
func jobStatus(job, before *batchv1.Job) field.ErrorList {
	at, now, were := field.NewPath("status"), &job.Status, &before.Status
	faults := checkUncounted(now.UncountedTerminatedPods, at.Child("uncountedTerminatedPods"))
	is := func(of batchv1.JobConditionType) bool { return hasCondition(now, of, v1.ConditionTrue) }
	was := func(of batchv1.JobConditionType) bool { return hasCondition(were, of, v1.ConditionTrue) }
	changes := func(of ...batchv1.JobConditionType) bool {
		return slices.ContainsFunc(of, func(of batchv1.JobConditionType) bool { return is(of) != was(of) })
	}
	const complete, failed, target, met = batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet
	finished := is(complete) || is(failed)
	finishes, starts, ends := finished != (was(complete) || was(failed)), !ptr.Equal(now.StartTime, were.StartTime), !ptr.Equal(now.CompletionTime, were.CompletionTime)
	failedIndexes := ptr.Deref(now.FailedIndexes, "")
	completes, fails := now.CompletedIndexes != were.CompletedIndexes, !ptr.Equal(now.FailedIndexes, were.FailedIndexes)
	indexed := ptr.Deref(job.Spec.CompletionMode, "") == batchv1.IndexedCompletion
	suspended := ptr.Deref(job.Spec.Suspend, false)
	resumes := hasCondition(were, batchv1.JobSuspended, v1.ConditionTrue) && hasCondition(now, batchv1.JobSuspended, v1.ConditionFalse)
	uncounted := ptr.Deref(now.UncountedTerminatedPods, batchv1.UncountedTerminatedPods{})
	completed, _ := indexes(now.CompletedIndexes, job.Spec.Completions)
	both, _ := indexes(failedIndexes, job.Spec.Completions)
	both = slices.DeleteFunc(both, func(i [2]int) bool {
		return !slices.ContainsFunc(completed, func(j [2]int) bool { return i[0] <= j[1] && j[0] <= i[1] })
	})
	for _, rule := range []struct {
		when, broken bool
		field, why   string
	}{
		{changes(complete, failed), is(complete) && is(failed), "conditions", "cannot set Complete=True and Failed=true conditions"},
		{changes(complete, target), is(complete) && is(target), "conditions", "cannot set Complete=True and FailureTarget=true conditions"},
		{changes(complete) || ends, now.CompletionTime != nil && !is(complete), "completionTime", "cannot set completionTime when there is no Complete=True condition"},
		{changes(complete) || ends, now.CompletionTime == nil && is(complete), "completionTime", ""},
		{starts || ends, now.StartTime != nil && now.CompletionTime != nil && now.CompletionTime.Before(now.StartTime), "completionTime", "must be equal to or after `startTime`"},
		{changes(failed) || fails, is(failed) && !is(target), "conditions", "cannot set Failed=True condition without the FailureTarget=true condition"},
		{changes(complete, met), is(complete) && !is(met), "conditions", "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"},
		{finishes || now.Active != were.Active, finished && now.Active > 0, "active", "active>0 is invalid for finished job"},
		{(finishes || starts) && !(suspended && ptr.Deref(job.Spec.Completions, 1) == 0), finished && now.StartTime == nil, "startTime", ""},
		{finishes || !apiequality.Semantic.DeepEqual(now.UncountedTerminatedPods, were.UncountedTerminatedPods), finished && len(uncounted.Failed)+len(uncounted.Succeeded) > 0, "uncountedTerminatedPods", "must be empty for finished job"},
		{completes, job.Spec.Completions != nil && !areIndexes(now.CompletedIndexes, job.Spec.Completions), "completedIndexes", "must be increasing indexes below completions"},
		{fails, job.Spec.Completions != nil && job.Spec.BackoffLimitPerIndex != nil && !areIndexes(failedIndexes, job.Spec.Completions), "failedIndexes", "must be increasing indexes below completions"},
		{completes, now.CompletedIndexes != "" && !indexed, "completedIndexes", "cannot set non-empty completedIndexes when non-indexed completion mode"},
		{fails, job.Spec.BackoffLimitPerIndex == nil && now.FailedIndexes != nil, "failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null"},
		{fails || completes, job.Spec.Completions != nil && len(both) > 0, "failedIndexes", "failedIndexes and completedIndexes overlap"},
		{finishes || !ptr.Equal(now.Terminating, were.Terminating), finished && ptr.Deref(now.Terminating, 0) > 0, "terminating", "terminating>0 is invalid for finished job"},
		{!ptr.Equal(now.Ready, were.Ready) || now.Active != were.Active, now.Ready != nil && *now.Ready > now.Active, "ready", "cannot set more ready pods than active"},
		{true, is(met) && is(failed), "conditions", "cannot set SuccessCriteriaMet=True and Failed=true conditions"},
		{true, is(met) && is(target), "conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"},
		{job.Spec.SuccessPolicy != nil, is(complete) && !is(met), "conditions", "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"},
		{was(failed), !is(failed), "conditions", "cannot disable the terminal Failed=True condition"},
		{was(complete), !is(complete), "conditions", "cannot disable the terminal Complete=True condition"},
		{was(target), !is(target), "conditions", "cannot disable the terminal FailureTarget=True condition"},
		{true, now.Failed < were.Failed, "failed", "cannot decrease the failed counter"},
		{!indexed || !ptr.Equal(job.Spec.Completions, job.Spec.Parallelism), now.Succeeded < were.Succeeded, "succeeded", "cannot decrease the succeeded counter"},
		{ends, now.CompletionTime != nil && were.CompletionTime != nil, "completionTime", "field is immutable"},
		{starts && !resumes, were.StartTime != nil && !suspended, "startTime", "field is immutable for unsuspended job once set"},
		{was(met), !is(met), "conditions", "cannot disable the SuccessCriteriaMet=True condition"},
		{was(complete) && !was(met), is(met), "conditions", "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"},
	} {
		switch at := at.Child(rule.field); {
		case !rule.when || !rule.broken:
		case rule.why == "":
			faults = append(faults, field.Required(at, "is required for finished jobs"))
		default:
			faults = append(faults, field.Invalid(at, "", rule.why))
		}
	}
	return faults
}

func hasCondition(s *batchv1.JobStatus, of batchv1.JobConditionType, status v1.ConditionStatus) bool {
	return slices.ContainsFunc(s.Conditions, func(c batchv1.JobCondition) bool { return c.Type == of && c.Status == status })
}

// checkUncounted refuses empty uids of pods, and those that are there twice.
func checkUncounted(pods *batchv1.UncountedTerminatedPods, at *field.Path) (faults field.ErrorList) {
	if pods == nil {
		return nil
	}
	seen := map[string]bool{}
	for i, uid := range slices.Concat(pods.Succeeded, pods.Failed) {
		at := at.Child("succeeded").Index(i)
		if n := len(pods.Succeeded); i >= n {
			at = field.NewPath("status", "uncountedTerminatedPods", "failed").Index(i - n)
		}
		if uid == "" {
			faults = append(faults, field.Invalid(at, uid, "must not be empty"))
		} else {
			faults = append(faults, once(seen, string(uid), at)...)
		}
	}
	return faults
}

func areIndexes(text string, completions *int32) bool {
	_, err := indexes(text, completions)
	return err == nil
}

// indexes are the intervals of a text such as 1,3-5, in order and below completions. With an error it returns those that
// are intervals.
func indexes(text string, completions *int32) (found [][2]int, err error) {
	if text == "" || completions == nil {
		return nil, nil
	}
	last := -1
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, wrong := strconv.Atoi(from)
		end := first
		if ranged && wrong == nil {
			end, wrong = strconv.Atoi(to)
		}
		if wrong != nil || end >= int(*completions) || ranged && first >= end {
			err = fmt.Errorf("%q is no interval of indexes", part)
			continue
		}
		if first <= last && len(found) > 0 {
			err = fmt.Errorf("%q does not increase", part)
		}
		last = end
		found = append(found, [2]int{first, end})
	}
	return found, err
}
