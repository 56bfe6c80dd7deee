package cgroup

import (
	"os"
	"path"
	"strconv"
	"strings"
)

// Setting is a value for a kernel file.
type Setting struct{ File, Value string }

// The file of a group's weight and the highest weight (MAX_SHARES; CGROUP_WEIGHT_MAX), and no quota
// of the cpu controller, by version.
var (
	fullWeight = [...]Setting{V1: {"cpu.shares", "262144"}, V2: {"cpu.weight", "10000"}}
	noQuota    = [...]Setting{V1: {"cpu.cfs_quota_us", "-1"}, V2: {"cpu.max", "max"}}
)

// parentShare is the CPU time of a group between a boosted one and top, in multiples of what all its
// siblings have together: these keep a fifth.
const parentShare = 4

// CPUBoost lists the settings that give the processes of a group CPU time before its siblings, and
// leave a part of it to the groups further up: the highest weight for the group; for the groups
// between it and top, parentShare times the weight of all their siblings, unless theirs is higher;
// no quota for the group and those directly below it. It is empty where no cpu controller is mounted.
func (s *System) CPUBoost(group, top string) ([]Setting, error) {
	if s.of[cpu] == nil {
		return nil, nil
	}
	set := func(group string, what Setting) Setting {
		return Setting{path.Join(s.dir(cpu, group), what.File), what.Value}
	}
	all := []Setting{set(group, noQuota[s.version]), set(group, fullWeight[s.version])}
	for at := path.Dir(group); len(at) > len(top) && at != "/" && at != "."; at = path.Dir(at) {
		all = append(all, Setting{s.weightFile(at), strconv.FormatInt(s.weightOfMost(at), 10)})
	}
	children, err := s.Children(group)
	for _, child := range children {
		all = append(all, set(path.Join(group, child), noQuota[s.version]))
	}
	return all, err
}

// weightOfMost is the weight with which a group gets parentShare times the CPU time of its siblings,
// or its own where that is higher.
func (s *System) weightOfMost(group string) (weight int64) {
	parent := path.Dir(group)
	siblings, _ := s.Children(parent) // those that cannot be listed do not count
	for _, sibling := range siblings {
		if at := path.Join(parent, sibling); at != group {
			weight += s.weight(at)
		}
	}
	full, _ := strconv.ParseInt(fullWeight[s.version].Value, 10, 64)
	return min(max(parentShare*weight, s.weight(group)), full)
}

func (s *System) weightFile(group string) string {
	return path.Join(s.dir(cpu, group), fullWeight[s.version].File)
}

// weight is the weight of a group; 0 for one without the cpu controller.
func (s *System) weight(group string) int64 {
	text, _ := os.ReadFile(s.weightFile(group))
	weight, _ := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return weight
}

// FreezeSetting is the setting that freezes the processes of a group. Under the v1
// freezer a killed process exits only after Group.Thaw. It says whether there is a
// freezer.
func (s *System) FreezeSetting(group string) (Setting, bool) {
	switch {
	case s.version == V1 && s.of[freezer] != nil:
		return Setting{path.Join(s.dir(freezer, group), "freezer.state"), "FROZEN"}, true
	case s.of[unified] != nil:
		return Setting{path.Join(s.dir(unified, group), "cgroup.freeze"), "1"}, true
	}
	return Setting{}, false
}

// NoStartsSetting is the setting by which the kernel refuses new containers in the group of a pod: on
// v2 it makes no cgroup there (cgroup.max.descendants, which systemd does not write), on v1 no process
// (pids.max), but accepts those that are moved there. It says whether there is one.
func (s *System) NoStartsSetting(group string) (Setting, bool) {
	switch {
	case s.version == V2:
		return Setting{path.Join(s.dir(unified, group), "cgroup.max.descendants"), "0"}, true
	case s.of[pids] != nil:
		return Setting{path.Join(s.dir(pids, group), "pids.max"), "0"}, true
	}
	return Setting{}, false
}

// MemoryHighFile is the path of a group's memory.high: above that usage the kernel
// throttles the group and counts it in memory.events. ok is false on v1.
func (s *System) MemoryHighFile(group string) (string, bool) {
	if s.version != V2 {
		return "", false
	}
	return path.Join(s.dir(memory, group), "memory.high"), true
}

// OOMGroupFile is the path of a group's memory.oom.group: where that is 1, the kernel's OOM killer
// kills all processes of the group together. ok is false on v1.
func (s *System) OOMGroupFile(group string) (string, bool) {
	if s.version != V2 {
		return "", false
	}
	return path.Join(s.dir(memory, group), "memory.oom.group"), true
}
