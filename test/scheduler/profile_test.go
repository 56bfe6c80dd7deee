package scheduler_test

import "slices"

// needPreScore are the plugins whose scores fail in kube-scheduler without PreScore.
var needPreScore = []string{"TaintToleration", "PodTopologySpread", "InterPodAffinity"}

// configuration of a scheduler; nil: the default.
func (m *maker) configuration() map[string]any {
	type object = map[string]any
	if !m.chance(35) {
		return nil
	}
	var args []any
	of := func(plugin string, fields object) {
		fields["apiVersion"], fields["kind"] = "kubescheduler.config.k8s.io/v1", plugin+"Args"
		args = append(args, object{"name": plugin, "args": fields})
	}
	weighted := func() (list []any) {
		for _, r := range append(some(m, 50, "memory", "ephemeral-storage", "example.com/gpu"), "cpu") {
			list = append(list, object{"name": r, "weight": 1 + m.IntN(3)})
		}
		return list
	}
	if m.chance(50) {
		strategy := object{"type": pick(m, "LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"), "resources": weighted()}
		if strategy["type"] == "RequestedToCapacityRatio" {
			strategy["requestedToCapacityRatio"] = object{"shape": []any{object{"utilization": 0, "score": m.IntN(11)}, object{"utilization": 50, "score": m.IntN(11)}, object{"utilization": 100, "score": m.IntN(11)}}}
		}
		of("NodeResourcesFit", object{"scoringStrategy": strategy})
	}
	if m.chance(30) {
		list := weighted()
		for _, r := range list {
			r.(object)["weight"] = 1
		}
		of("NodeResourcesBalancedAllocation", object{"resources": list})
	}
	if m.chance(20) {
		of("InterPodAffinity", object{"hardPodAffinityWeight": m.IntN(101), "ignorePreferredTermsOfExistingPods": m.chance(50)})
	}
	if m.chance(20) {
		of("PodTopologySpread", object{"defaultingType": "List", "defaultConstraints": []any{object{"maxSkew": 1, "topologyKey": pick(m, topologies...), "whenUnsatisfiable": "ScheduleAnyway"}}})
	}
	if m.chance(15) {
		of("DefaultPreemption", object{"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 100})
	}
	if m.chance(15) {
		of("VolumeBinding", object{"shape": []any{object{"utilization": 0, "score": m.IntN(11)}, object{"utilization": 100, "score": m.IntN(11)}}})
	}
	if m.chance(15) {
		of("NodeAffinity", object{"addedAffinity": object{"requiredDuringSchedulingIgnoredDuringExecution": object{"nodeSelectorTerms": []any{object{"matchExpressions": []any{object{"key": "disk", "operator": pick(m, "Exists", "DoesNotExist")}}}}}}})
	}
	plugins := object{}
	names := func(list []string) (named []any) {
		for _, name := range list {
			named = append(named, object{"name": name})
		}
		return named
	}
	off := some(m, 12, "TaintToleration", "NodeAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality", "VolumeZone", "NodeUnschedulable")
	if len(off) > 0 {
		plugins["multiPoint"] = object{"disabled": names(off)}
	}
	scoring := some(m, 40, "TaintToleration", "NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity", "NodeResourcesBalancedAllocation", "ImageLocality")
	if m.chance(40) {
		var enabled []any
		for _, name := range scoring {
			enabled = append(enabled, object{"name": name, "weight": 1 + m.IntN(5)})
		}
		plugins["score"] = object{"enabled": enabled}
		if off := slices.DeleteFunc(slices.Clone(off), func(name string) bool { return !slices.Contains(needPreScore, name) || !slices.Contains(scoring, name) }); len(off) > 0 {
			plugins["preScore"] = object{"enabled": names(off)}
		}
	} else if m.chance(30) {
		plugins["score"] = object{"disabled": names(scoring)}
	}
	if m.chance(15) {
		plugins["filter"] = object{"disabled": names(some(m, 40, "NodeResourcesFit", "TaintToleration", "InterPodAffinity", "PodTopologySpread", "NodeAffinity"))}
	}
	if m.chance(8) {
		plugins["postFilter"] = object{"disabled": names([]string{"*"})}
	}
	return object{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"profiles": []any{object{"schedulerName": "default-scheduler", "plugins": plugins, "pluginConfig": args}},
	}
}
