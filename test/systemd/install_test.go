package systemd_test

import (
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/harness"
)

// pod is that of the DaemonSet on the host that is the machine: a service there, for which the
// host's root is its own, and the directory podDir.
type pod struct{ *machine }

const podDir, podUnit = "/srv/pod", "pod.service"

// deployed is what a deployment configures of a node.
const deployed = `apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
dryRun: true
cgroupRoot: /node
evictionHard: {memory.available: 100Mi}
`

// TestAnInstallerKeepsItsHostAsThePodIs boots once; its parts follow each other.
func TestAnInstallerKeepsItsHostAsThePodIs(t *testing.T) {
	p := &pod{boot(t, "")}
	p.prepare()
	before := p.traces()
	for _, part := range []struct {
		name string
		run  func(*pod)
	}{
		// rule: S9.4
		{"a host of a package is refused", (*pod).refusesPackage},
		{"a read-only host is refused and stays as it is", (*pod).refusesReadOnly},
		{"a host without systemd is refused", (*pod).refusesOther},
		{"evictd is installed and active", (*pod).installs},
		// rule: S9.7
		{"a new token reaches the host without a restart", (*pod).renews},
		// rule: S9.8
		{"a new configuration is checked before it reaches the host", (*pod).configures},
		// rule: S9.6
		{"an installer that is started again restarts nothing", (*pod).startsAgain},
		{"an upgrade restarts evictd and keeps its state", (*pod).upgrades},
		// rule: S9.9
		{"the pod is ready while the unit is active", (*pod).mirrors},
		// rule: S9.3
		{"nothing is left of it", func(p *pod) { p.uninstalls(before) }},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			m := *p.machine
			m.T = t
			inner := &pod{&m}
			defer func() {
				if t.Failed() {
					t.Logf("journal:\n%s", inner.do("journalctl", "--no-pager", "--quiet", "--lines=100"))
				}
			}()
			part.run(inner)
		}) {
			return
		}
	}
}

// prepare makes the pod's files, and a cgroup that is taken for the node.
func (p *pod) prepare() {
	p.Helper()
	for _, dir := range []string{"memory", "pids", ""} {
		_, _, _ = p.try("mkdir", "-p", filepath.Join("/sys/fs/cgroup", dir, "node"))
	}
	p.do("mkdir", "-p", podDir)
	for _, name := range []string{"evictd", "evictd-agent", "evictd-install"} {
		// The agent is beside evictd.
		run(p.T, "cp", filepath.Join(filepath.Dir(harness.Program(p.T, strings.TrimSuffix(name, "-agent"))), name), filepath.Join(p.root, podDir))
	}
	run(p.T, "cp", "-r", "../../systemd", filepath.Join(p.root, podDir, "units"))
	p.give("evictd.yaml", deployed)
	p.give("token", "first")
	server := httptest.NewTLSServer(nil)
	server.Close()
	p.give("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// give changes a file of the pod.
func (p *pod) give(name, text string) {
	p.Helper()
	p.write(filepath.Join(podDir, name+".new"), text)
	p.do("mv", filepath.Join(podDir, name+".new"), filepath.Join(podDir, name))
}

func command(args ...string) []string {
	return append(append([]string{podDir + "/evictd-install"}, args...), "--state-file="+podDir+"/state")
}

func running() []string { return runningOn("/") }

// runningOn runs the installer for a host whose root directory is there.
func runningOn(root string) []string {
	return command("run", "--root="+root, "--programs="+podDir, "--units="+podDir+"/units", "--config="+podDir+"/evictd.yaml",
		"--token="+podDir+"/token", "--ca="+podDir+"/ca.crt", "--server=https://127.0.0.1:1", "--node-name=n1", "--interval=100ms")
}

// start runs the installer until this part of the test ends.
func (p *pod) start() {
	p.Helper()
	p.do("rm", "-f", podDir+"/state") // as in a new container
	p.do(append([]string{"systemd-run", "--quiet", "--unit=" + podUnit, "--property=CapabilityBoundingSet="}, running()...)...)
	p.Cleanup(func() {
		p.do("systemctl", "stop", podUnit)
		if state := p.property(podUnit, "ActiveState"); state != "inactive" {
			p.Errorf("the installer is %s after its end", state)
		}
	})
	p.awaitReady("")
}

// awaitReady waits until the probe succeeds, or fails with a text.
func (p *pod) awaitReady(failure string) {
	p.Helper()
	await(p, "the probe to say "+failure, func() bool {
		if state := p.property(podUnit, "ActiveState"); state != "active" {
			p.Fatalf("the installer is %s: %s", state, p.log(podUnit))
		}
		_, errs, err := p.try(command("ready")...)
		return (err != nil) == (failure != "") && strings.Contains(errs, failure)
	})
}

// hostFile is the content of a file of the host.
func (p *pod) hostFile(path string) string {
	p.Helper()
	return string(require.ReadFile(p, filepath.Join(p.root, path)))
}

// traces are the paths of a host that an installation could change, and its units.
func (p *pod) traces() string {
	p.Helper()
	return p.do("sh", "-c", `find /etc /opt /usr/local /var/lib /run/evictd ! -path '/var/lib/systemd/*' 2>/dev/null | sort
systemctl list-units --all --plain --no-legend 'evictd*' | grep -v -e '^evictd-test.target ' -e ' not-found ' || true
systemctl list-unit-files --no-legend 'evictd*' | grep -v -e '^evictd-test.target ' -e ' not-found ' || true
grep evictd /etc/passwd /etc/group || true`)
}

// isAs fails if the host has other traces than before.
func (p *pod) isAs(before string) {
	p.Helper()
	was, is := strings.Split(before, "\n"), strings.Split(p.traces(), "\n")
	for _, line := range is {
		if !slices.Contains(was, line) {
			p.Errorf("the host has now %q", line)
		}
	}
	for _, line := range was {
		if !slices.Contains(is, line) {
			p.Errorf("the host has no longer %q", line)
		}
	}
}

func (p *pod) refused(want string) {
	p.Helper()
	before := p.traces()
	_, stderr, err := p.try(running()...)
	if err == nil || strings.Count(stderr, "evictd-install: ") != 1 || !strings.Contains(stderr, want) {
		p.Errorf("%v: %s; expected one line with %q", err, stderr, want)
	}
	p.isAs(before)
}

func (p *pod) refusesPackage() {
	p.write("/usr/lib/systemd/system/evictd.service", "[Service]\nExecStart=/bin/true\n")
	defer p.do("rm", "/usr/lib/systemd/system/evictd.service")
	p.refused("a package has installed")
}

func (p *pod) refusesReadOnly() {
	p.do("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", "/opt")
	defer p.do("umount", "/opt")
	p.refused("read-only: expected a --prefix that is writable")
}

func (p *pod) refusesOther() {
	p.do("mv", "/run/systemd/system", "/run/systemd/elsewhere")
	defer p.do("mv", "/run/systemd/elsewhere", "/run/systemd/system")
	p.refused("the host has no systemd")
}

func (p *pod) installs() {
	p.start()
	if got := p.property(daemon, "ActiveState") + " " + p.property(daemon, "UnitFileState"); got != "active enabled" {
		p.Errorf("%s is %s", daemon, got)
	}
	if status := p.do("/opt/evictd/bin/evictd", "status"); !strings.Contains(status, "memory.available") {
		p.Errorf("evictd status: %s", status)
	}
	if got := p.do("stat", "--format=%a %U", "/etc/evictd/kubeconfig", "/etc/evictd/token"); got != "600 root\n600 root" {
		p.Errorf("kubeconfig and token are %s", got)
	}
	if command := p.property(daemon, "ExecStart"); !strings.Contains(command, "/opt/evictd/bin/evictd run") || !strings.Contains(command, "--node-name n1") {
		p.Errorf("it runs %s", command)
	}
	await(p, "the agent to be started as a user of its own", func() bool {
		out, _, err := p.try("sh", "-c", "ps -o user= -p $(pgrep -x evictd-agent | head -n 1)")
		return err == nil && strings.TrimSpace(out) != "root"
	})
}

func (p *pod) renews() {
	p.start()
	pid := p.property(daemon, "MainPID")
	p.give("token", "second")
	await(p, "the token to reach the host", func() bool { return p.hostFile("/etc/evictd/token") == "second" })
	if now := p.property(daemon, "MainPID"); now != pid {
		p.Errorf("evictd was restarted: process %s after %s", now, pid)
	}
}

func (p *pod) configures() {
	p.start()
	pid := p.property(daemon, "MainPID")
	p.give("evictd.yaml", deployed+"evictionHrad: {}\n")
	p.awaitReady("evictionHrad")
	if p.hostFile("/etc/evictd/evictd.yaml") != deployed || p.property(daemon, "MainPID") != pid {
		p.Error("a faulty configuration reached the host")
	}
	changed := strings.Replace(deployed, "100Mi", "90Mi", 1)
	p.give("evictd.yaml", changed)
	p.awaitReady("")
	if p.hostFile("/etc/evictd/evictd.yaml") != changed || p.property(daemon, "MainPID") == pid {
		p.Error("a new configuration is not in use")
	}
}

func (p *pod) startsAgain() {
	pid := p.property(daemon, "MainPID")
	if p.property(daemon, "ActiveState") != "active" {
		p.Error("evictd ended with its installer")
	}
	p.start()
	if now := p.property(daemon, "MainPID"); now != pid {
		p.Errorf("evictd was restarted: process %s after %s", now, pid)
	}
}

func (p *pod) upgrades() {
	pid := p.property(daemon, "MainPID")
	p.write("/var/lib/evictd/kept", "")
	program, err := os.OpenFile(filepath.Join(p.root, podDir, "evictd"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(p, err)
	_, err = program.WriteString("another version")
	require.NoError(p, errors.Join(err, program.Close()))
	p.start()
	if p.property(daemon, "MainPID") == pid {
		p.Error("the old program still runs")
	}
	if !strings.HasSuffix(p.hostFile("/opt/evictd/bin/evictd"), "another version") {
		p.Error("the old program is still there")
	}
	p.do("rm", "/var/lib/evictd/kept") // fails if the state is lost
}

func (p *pod) mirrors() {
	p.start()
	p.do("systemctl", "stop", daemon)
	p.awaitReady(daemon + " is inactive")
	p.do("systemctl", "start", daemon)
	p.awaitReady("")
}

func (p *pod) uninstalls(before string) {
	for range 2 {
		p.do(command("uninstall", "--root=/")...)
	}
	p.isAs(before)
	p.do(command("ready")...)
}
