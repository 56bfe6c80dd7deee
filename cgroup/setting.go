package cgroup

import "path"

// Setting is a value for a kernel file.
type Setting struct{ File, Value string }

// What the processor's controller is told, by version: the highest weight
// (MAX_SHARES; CGROUP_WEIGHT_MAX) and no quota.
var (
	fullWeight = [...]Setting{V1: {"cpu.shares", "262144"}, V2: {"cpu.weight", "10000"}}
	noQuota    = [...]Setting{V1: {"cpu.cfs_quota_us", "-1"}, V2: {"cpu.max", "max"}}
)

// CPUBoost lists the settings by which the processes of a group get as much of
// the processor as they can use: the highest weight for the group and for those
// between it and one above, top; no quota for it and the groups directly below
// it. There are none where no cpu controller is mounted.
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

// FreezeSetting is the setting by which the processes of a group run no further; under
// the v1 freezer they do not even die before Group.Thaw. It says whether there is
// a freezer.
func (s *System) FreezeSetting(group string) (Setting, bool) {
	switch {
	case s.version == V1 && s.of[freezer] != nil:
		return Setting{path.Join(s.dir(freezer, group), "freezer.state"), "FROZEN"}, true
	case s.of[unified] != nil:
		return Setting{path.Join(s.dir(unified, group), "cgroup.freeze"), "1"}, true
	}
	return Setting{}, false
}

// MemoryHighFile is the file of a group's memory.high: at that usage the kernel slows
// down who takes memory, and tells. It says whether there is one, as on v2.
func (s *System) MemoryHighFile(group string) (string, bool) {
	if s.version != V2 {
		return "", false
	}
	return path.Join(s.dir(memory, group), "memory.high"), true
}
