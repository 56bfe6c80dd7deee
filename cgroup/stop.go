package cgroup

import "errors"

// Kill kills every process in the group and below it at once, forks included,
// by cgroup.kill (Linux 5.14, v2). It is errors.ErrUnsupported where there is no
// such file. On a hybrid host it kills those processes that the v2 hierarchy
// shows in the group: Populated tells whether that was all.
func (g *Group) Kill() error {
	return g.fault("kill processes", write(g.dirs[unified], "cgroup.kill\x00", "1", errors.ErrUnsupported))
}

// Thaw lets frozen processes run, and die. It is errors.ErrUnsupported where
// there is no freezer.
func (g *Group) Thaw() error {
	if g.version == V1 && g.dirs[freezer] >= 0 {
		return g.fault("write freezer.state", write(g.dirs[freezer], "freezer.state\x00", "THAWED", errors.ErrUnsupported))
	}
	return g.fault("write cgroup.freeze", write(g.dirs[unified], "cgroup.freeze\x00", "0", errors.ErrUnsupported))
}
