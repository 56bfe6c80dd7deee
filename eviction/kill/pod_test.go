package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// pod is a bounded cgroup of a test, on the version that the host has.
type pod struct {
	*cgroup.Group
	cgroups *cgroup.System
	// pidfdsOnly is set for a pod without cgroup.kill, which v1 does not have, nor v2
	// before Linux 5.14.
	pidfdsOnly bool
}

func newPod(t testing.TB) *pod {
	t.Helper()
	s, group := cgrouptest.New(t, cgroup.Limits{Memory: stats.Known(512 << 20), PIDs: stats.Known(200)})
	return &pod{Group: cgrouptest.Open(t, s, group), cgroups: s}
}

// eachWay runs a test of a pod that is killed by cgroup.kill, where the kernel has that,
// and of one that is killed by the pidfds of its processes alone.
func eachWay(t *testing.T, test func(*testing.T, *pod)) {
	for name, pidfdsOnly := range map[string]bool{"cgroup.kill": false, "pidfds": true} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t)
			p.pidfdsOnly = pidfdsOnly
			test(t, p)
		})
	}
}

func (p *pod) Kill() error {
	if p.pidfdsOnly {
		return errors.ErrUnsupported
	}
	return p.Group.Kill()
}

// freeze freezes the processes of the pod.
func (p *pod) freeze(t testing.TB) {
	t.Helper()
	setting, ok := p.cgroups.FreezeSetting(p.Path())
	if !ok {
		t.Skip("skipped: needs cgroup.freeze (v2) or freezer.state (v1)")
	}
	require.NoError(t, os.WriteFile(setting.File, []byte(setting.Value), 0))
}

// usage is the memory of the pod, bytes; unknown where it cannot be read.
func (p *pod) usage() stats.Amount {
	usage, err := p.Usage()
	if err != nil {
		return stats.Amount{}
	}
	return usage
}

// start runs a shell script in the pod and waits for its first line, which it must write
// when it is ready.
func (p *pod) start(t testing.TB, script string) (pid int) {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "read joined; "+script)
	joined, err := cmd.StdinPipe()
	require.NoError(t, err)
	out := startCommand(t, cmd)
	require.NoError(t, p.cgroups.Add(p.Path(), cmd.Process.Pid))
	fmt.Fprintln(joined)
	awaitReady(t, out)
	return cmd.Process.Pid
}

// startRole runs the test binary in a role in the pod.
func (p *pod) startRole(t testing.TB, role string) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	p.start(t, fmt.Sprintf("export %s=%s; exec %q", roleVariable, role, program))
}
