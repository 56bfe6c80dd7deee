package cgroup

import "path"

// Setting is a value for a kernel file.
type Setting struct{ File, Value string }

// The highest weight (MAX_SHARES; CGROUP_WEIGHT_MAX) and no quota of the cpu controller,
// by version.
var (
	fullWeight = [...]Setting{V1: {"cpu.shares", "262144"}, V2: {"cpu.weight", "10000"}}
	noQuota    = [...]Setting{V1: {"cpu.cfs_quota_us", "-1"}, V2: {"cpu.max", "max"}}
)

// CPUBoost lists the settings that give the processes of a group the most CPU time: the
// highest weight for the group and all groups up to top, excluding it; no quota for the
// group and those directly below it. It is empty where no cpu controller is mounted.
func (s *System) CPUBoost(group, top string) ([]Setting, error) {
	if s.of[cpu] == nil {
		return nil, nil
	}
	set := func(group string, what Setting) Setting {
		return Setting{path.Join(s.dir(cpu, group), what.File), what.Value}
	}
	all := []Setting{set(group, noQuota[s.version])}
	for at := group; at != top && at != "/" && at != "."; at = path.Dir(at) {
		all = append(all, set(at, fullWeight[s.version]))
	}
	children, err := s.Children(group)
	for _, child := range children {
		all = append(all, set(path.Join(group, child), noQuota[s.version]))
	}
	return all, err
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

// MemoryHighFile is the path of a group's memory.high: above that usage the kernel
// throttles the group and counts it in memory.events. ok is false on v1.
func (s *System) MemoryHighFile(group string) (string, bool) {
	if s.version != V2 {
		return "", false
	}
	return path.Join(s.dir(memory, group), "memory.high"), true
}
