package systemd_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// host is where the pod has the root directory of a host without systemd: that of the machine, with another /run.
const host = "/srv/host"

// TestEvictdInAPodEndsAndBeginsWithIt runs the installer as a container of a kubelet is run: a
// service that is started again when it ends. Its parts follow each other.
// rule: S9.20
func TestEvictdInAPodEndsAndBeginsWithIt(t *testing.T) {
	p := &pod{boot(t, "")}
	p.prepare()
	p.makeOtherHost()
	before := p.remains()
	p.do(append([]string{"systemd-run", "--quiet", "--unit=" + podUnit, "--property=Restart=always", "--property=RestartSec=100ms", "--property=StartLimitIntervalSec=0",
		"--property=ExecStopPost=/bin/sh -c 'echo container: $EXIT_CODE $EXIT_STATUS'"}, append(runningOn(host), "--in-pod")...)...)
	p.awaitStarted()
	if got := p.groupOf(p.evictd()); got != "/evictd" {
		t.Errorf("evictd is in the cgroup %q", got)
	}
	if text := p.do("chroot", host, "/opt/evictd/bin/evictd", "doctor"); !strings.Contains(text, "evictd is a process of a pod of the DaemonSet (node.inPod)") {
		t.Errorf("doctor does not show the pod: %s", text)
	}

	// It is started again in the same container, as systemd does.
	first, container := p.evictd(), p.property(podUnit, "MainPID")
	p.write("/var/lib/evictd/kept", "")
	p.do("kill", "-KILL", first)
	await(p, "evictd to be started again", func() bool { pid := p.evictd(); return pid != "" && pid != first })
	p.awaitStarted()
	if got := p.property(podUnit, "MainPID"); got != container {
		t.Errorf("the container was started again: process %s after %s", got, container)
	}

	// Of a configuration that is well-formed, and that evictd refuses on this host, the pod says why it is not ready, and
	// the one before is in use; without that, evictd does not start.
	p.give("evictd.yaml", strings.Replace(deployed, "100Mi", "999Ti", 1))
	p.awaitReady("999Ti")
	refusing := p.evictd()
	if refusing == "" {
		t.Error("evictd does not run with the configuration that it had accepted")
	}
	p.do("rm", "/var/lib/evictd/configuration.accepted")
	p.do("kill", "-KILL", refusing)
	await(p, "the container to end", func() bool { return strings.Contains(p.log(podUnit), "container: exited 2") })
	log := p.log(podUnit)
	end := log[:strings.Index(log, "container: exited 2")]
	const reason = "evictd-install: evictd has ended with exit code 2: "
	if at := strings.LastIndex(end, "evictd-install: "); at < 0 || !strings.HasPrefix(end[at:], reason) || !strings.Contains(end[at:], "999Ti") {
		t.Errorf("the log before its end is %q; expected evictd's reason at last", end)
	}
	p.give("evictd.yaml", deployed)
	p.awaitStarted()
	p.do("rm", "/var/lib/evictd/kept") // fails if the state is lost

	// A container that is killed ends evictd.
	second := p.evictd()
	p.do("kill", "-KILL", p.property(podUnit, "MainPID"))
	await(p, "evictd to be started with the next container", func() bool { pid := p.evictd(); return pid != "" && pid != second })
	p.awaitStarted()
	p.do("systemctl", "stop", podUnit)
	if pid := p.evictd(); pid != "" {
		t.Errorf("evictd, process %s, outlives its pod", pid)
	}
	p.do(command("uninstall", "--root="+host)...)
	if after := p.remains(); after != before {
		t.Errorf("the host has\n%s\nand had\n%s", after, before)
	}
}

// awaitStarted waits until the probe of a container succeeds that may have to be started again first.
func (p *pod) awaitStarted() {
	p.Helper()
	await(p, "evictd to be ready", func() bool {
		_, _, err := p.try(command("ready")...)
		return err == nil && p.property(podUnit, "ActiveState") == "active"
	})
}

// evictd is the process id of evictd; empty where none runs.
func (p *pod) evictd() string {
	out, _, _ := p.try("pgrep", "-f", "/bin/evictd run ")
	return strings.TrimSpace(out)
}

// groupOf is the cgroup of a process for its memory, or for all in v2.
func (p *pod) groupOf(pid string) string {
	p.Helper()
	for line := range strings.Lines(p.do("cat", filepath.Join("/proc", pid, "cgroup"))) {
		if fields := strings.SplitN(strings.TrimSpace(line), ":", 3); fields[1] == "" && !strings.Contains(line, ":memory:") || strings.Contains(fields[1], "memory") {
			return fields[2]
		}
	}
	return ""
}

// remains are the paths that an installation could leave, and its cgroups.
func (p *pod) remains() string {
	p.Helper()
	return p.traces() + "\n" + p.do("sh", "-c", "find "+host+"/run /sys/fs/cgroup -name 'evictd*' ! -path '*/system.slice/*'")
}
