package cgroup

import "errors"

// Kill kills every process in the group and below it, including those being forked, by
// cgroup.kill (Linux 5.14, v2). The error is errors.ErrUnsupported without that file.
// On a hybrid host it kills the processes that the v2 hierarchy has in the group:
// Populated says whether these were all.
func (g *Group) Kill() error {
	return g.fault("kill processes", write(g.dirs[unified], "cgroup.kill\x00", "1", errors.ErrUnsupported))
}

// Thaw unfreezes the processes of the group. Of v1 also those of the groups below it, where
// container runtimes freeze: such a process does not die of SIGKILL, as one of v2 does. The error
// is errors.ErrUnsupported without a freezer.
func (g *Group) Thaw() error {
	if g.version == V1 && g.dirs[freezer] >= 0 {
		t := tally{write: "THAWED"}
		return g.fault("write freezer.state", t.walk(g.dirs[freezer], "freezer.state\x00"))
	}
	return g.fault("write cgroup.freeze", write(g.dirs[unified], "cgroup.freeze\x00", "0", errors.ErrUnsupported))
}

// LiftQuotas lets the processes of the group, and of every group below it, have all the processor time that the group
// gets: a killed process needs some to exit. Programs of a container may have set the quotas.
func (g *Group) LiftQuotas() error {
	if g.dirs[cpu] < 0 {
		return nil
	}
	quota := noQuota[g.version]
	t := tally{write: quota.Value}
	return g.fault("lift "+quota.File, t.walk(g.dirs[cpu], quota.File+"\x00"))
}
