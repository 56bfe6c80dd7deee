package recorder

import (
	"encoding/json"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/stats"
)

// begin begins a segment with a report, with what is known of the node then.
func (r *Recorder) begin(report *control.Report, pods map[string]*v1.Pod) bool {
	at, of := report.At, report.Eviction
	k := key{Begins: at, Version: r.cfg.Version, Scenario: simulate.File{
		TypeMeta: metav1.TypeMeta{APIVersion: config.APIVersion, Kind: simulate.Kind},
		Spec: simulate.FileSpec{Config: inEffect(r.cfg.Eviction, of), Node: r.cfg.Node, Daemon: simulate.FileDaemon{
			Lapse: metav1.Duration{Duration: of.Lapse}, SoftPatience: metav1.Duration{Duration: of.SoftPatience}, DryRun: of.DryRun, MeasuresRelief: of.MeasuresRelief,
		}},
	}}
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		k.Scenario.Spec.Pods = append(k.Scenario.Spec.Pods, redacted(pods[name]))
	}
	data, err := json.Marshal(k)
	if err == nil {
		err = r.ring.Begin(data)
	}
	r.logFault(err)
	r.begins, r.pods, r.used, r.again = at, pods, map[types.UID]stats.Pod{}, err != nil
	return err == nil
}

// inEffect is a configuration without the steps before evictions that the node cannot take.
func inEffect(file config.EvictdConfiguration, of *eviction.Config) config.EvictdConfiguration {
	if of.MemoryReclaims.Budget == 0 {
		file.MemoryReclaimBudget = ""
	}
	if of.ThrottlePeriod == 0 {
		file.MemoryThrottlePeriod = metav1.Duration{}
	}
	if len(of.Resizes.Namespaces) == 0 {
		file.ResizeNamespaces = nil
	}
	if of.Restarts.BackOff == 0 {
		file.ContainerPressure = ""
	}
	return file
}

// asOf are the pods as they were in the pass: candidates that were deleted since are
// added again. Absent are those that were no candidates.
func (r *Recorder) asOf(report *control.Report, pods map[string]*v1.Pod) (all map[string]*v1.Pod, absent []string) {
	all = maps.Clone(pods)
	present := map[types.UID]bool{}
	add := func(pod *eviction.Pod) {
		name := pod.String()
		present[pod.UID] = true
		if was := r.pods[name]; was != nil && was.UID == pod.UID && (all[name] == nil || all[name].UID != was.UID) {
			all[name], r.listed = was, nil
		}
	}
	for i := range report.Candidates {
		add(report.Candidates[i].Pod)
	}
	for _, pod := range report.Exited {
		add(pod)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !present[all[name].UID] {
			absent = append(absent, name)
		}
	}
	return all, absent
}

func byName(manifests []*v1.Pod) map[string]*v1.Pod {
	pods := make(map[string]*v1.Pod, len(manifests))
	for _, pod := range manifests {
		pods[pod.Namespace+"/"+pod.Name] = pod
	}
	return pods
}

// changes are the pods that were added, and the names of those that were removed and
// not replaced by another pod.
func changes(before, after map[string]*v1.Pod) (add []v1.Pod, remove []string) {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if was, known := before[name]; !known || was.UID != after[name].UID {
			add = append(add, redacted(after[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, stays := after[name]; !stays {
			remove = append(remove, name)
		}
	}
	return add, remove
}
