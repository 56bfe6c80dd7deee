package systemd_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

const daemon, agentUnits = "evictd.service", "evictd-agent@*.service"

// configuration of a node of its own, where the pods of this host's tests are not.
const configuration = `apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
mode: %s
dryRun: false
nodeName: n1
cgroupRoot: /node
podManifests: /etc/evictd/pods
evictionHard: {memory.available: %s}
evictionPressureTransitionPeriod: 1s
housekeepingInterval: 1s
%s
`

// nodeMemory is the limit of the cgroup that is taken for the node.
const nodeMemory = 256 << 20

// TestTheServicesKeepWhatTheirUnitsPromise boots once; its parts follow each other.
//
// rule: M.107
func TestTheServicesKeepWhatTheirUnitsPromise(t *testing.T) {
	m := boot(t, packageFile(t))
	for _, part := range []struct {
		name string
		run  func(*machine)
	}{
		{"the package starts evictd, which touches nothing yet", (*machine).isReady},
		{"the sandbox lets through what a kill needs and nothing else", (*machine).isConfined},
		{"a reload is checked first and refused whole", (*machine).reloads},
		{"a pod is evicted under the sandbox", (*machine).evicts},
		{"doctor reports what the unit grants, not what its caller has", (*machine).isExamined},
		{"a daemon that hangs is ended and started again", (*machine).isWatched},
		{"an agent without privileges reports to the API server", (*machine).hasAgent},
		{"a container that runc alone runs is seen", (*machine).seesBareContainers},
		{"a daemon that is killed and started again ends its victim", (*machine).resumes},
		{"systemd listens on a port for a daemon without a network", (*machine).servesPort},
		{"an agent with a credential needs no privilege", (*machine).hasCredential},
		{"an upgrade keeps the configuration and starts the new daemon", (*machine).upgrades},
		{"bad configuration leaves the one before, and without that is not tried again", (*machine).refusesBadInput},
		{"the package is removed and comes back as it was", (*machine).returns},
		{"the package is purged without a trace", (*machine).isPurged},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			inner := *m
			inner.T = t
			defer func() {
				if t.Failed() {
					t.Logf("journal:\n%s", inner.do("journalctl", "--no-pager", "--quiet", "--lines=200"))
				}
			}()
			part.run(&inner)
		}) {
			return
		}
	}
}

func (m *machine) isReady() {
	await(m, "the service to be active", func() bool { return m.property(daemon, "ActiveState") == "active" })
	if status := m.property(daemon, "StatusText"); !strings.HasPrefix(status, "dry run; ") || !strings.Contains(status, " threshold ") || !strings.Contains(status, "next victim: none") {
		m.Errorf("status %q", status)
	}
	if restarts := m.property(daemon, "NRestarts"); restarts != "0" {
		m.Errorf("%s restarts", restarts)
	}
	if socket := m.do("stat", "--format=%F %U %G %a", "/run/evictd/status.sock"); socket != "socket root evictd 660" {
		m.Errorf("status.sock is %s", socket)
	}
	if status := m.do("evictd", "status"); !strings.Contains(status, "memory.available") {
		m.Errorf("evictd status: %s", status)
	}
	if slice := m.property(daemon, "Slice"); slice != "evictd.slice" {
		m.Errorf("it is in %s", slice)
	}
}

// isConfined looks at the running process, and runs a program of ours in its place
// with everything else as it is shipped.
func (m *machine) isConfined() {
	status := require.ReadFile(m, fmt.Sprintf("/proc/%d/status", m.pidOf(daemon)))
	const granted = 1<<5 | 1<<1 | 1<<24 | 1<<23 | 1<<19 // KILL, DAC_OVERRIDE, SYS_RESOURCE, SYS_NICE, SYS_PTRACE
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		switch set, _ := strconv.ParseUint(value, 16, 64); {
		case name == "CapEff" && set&^granted != 0:
			m.Errorf("capabilities %s", value)
		case name == "NoNewPrivs" && value != "1", name == "Seccomp" && value != "2":
			m.Error(name, value)
		}
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(filepath.Join(m.root, "usr/bin/evictd-probe"), self, 0o755)
	}
	require.NoError(m, err)
	unit := require.ReadFile(m, filepath.Join(m.root, "usr/lib/systemd/system", daemon))
	var lines []string
	for line := range strings.Lines(string(unit)) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "Type", "ExecReload", "ExecStopPost", "WatchdogSec", "Restart", "Wants", "After", "WantedBy", "Also": // of the daemon, not of the sandbox
		case "ExecStart":
			lines = append(lines, "Type=oneshot\nExecStart=/usr/bin/evictd-probe "+probeArgument+"\n")
		default:
			lines = append(lines, line)
		}
	}
	m.write("run/systemd/system/probe.service", strings.Join(lines, ""))
	m.do("systemctl", "daemon-reload")
	_, _, err = m.try("systemctl", "start", "probe.service")
	await(m, "the probe to be logged", func() bool { return strings.Contains(m.log("probe.service"), "probed") })
	if err != nil {
		m.Errorf("%v: %s", err, m.log("probe.service"))
	}
}

// configure writes the configuration and makes the node's cgroup.
func (m *machine) configure(mode, memory, more string) {
	m.Helper()
	m.write("etc/evictd/evictd.yaml", fmt.Sprintf(configuration, mode, memory, more))
}

// memoryGroup is a cgroup of the memory controller in the machine.
func (m *machine) memoryGroup(name string) string {
	for _, hierarchy := range []string{"/sys/fs/cgroup/memory", "/sys/fs/cgroup"} {
		if info, err := os.Stat(m.root + hierarchy + "/cgroup.procs"); err == nil && info.Mode().IsRegular() {
			return hierarchy + "/" + name
		}
	}
	m.Fatal("there is no memory controller in the machine")
	return ""
}

func (m *machine) reloads() {
	m.do("mkdir", "-p", m.memoryGroup("node/kubepods"))
	m.limitNode()
	m.configure("native", "32Mi", "")
	m.do("systemctl", "restart", daemon)

	m.configure("native", "64Mi", "nodeStatusFile: /var/lib/evictd/node.yaml")
	m.do("systemctl", "reload", daemon)
	await(m, "each field to be logged", func() bool {
		logged := m.log(daemon)
		return strings.Contains(logged, `field=evictionHard[memory.available] from=32Mi to=64Mi takesEffect=now`) &&
			strings.Contains(logged, `field=nodeStatusFile from="" to=/var/lib/evictd/node.yaml takesEffect="at the next start"`)
	})
	m.configure("native", "lots", "")
	if _, _, err := m.try("systemctl", "reload", daemon); err == nil {
		m.Error("a reload of a bad configuration succeeds")
	}
	m.do("systemctl", "kill", "--kill-whom=main", "--signal=HUP", daemon)
	await(m, "the refusal to be logged", func() bool {
		status := m.property(daemon, "StatusText")
		return strings.HasPrefix(status, "the new configuration is refused: ") && strings.Contains(status, "lots")
	})
	await(m, "the old configuration to stay", func() bool {
		return m.property(daemon, "ActiveState") == "active" && strings.Contains(m.do("evictd", "status"), "hard 64Mi")
	})
}

// pod runs a pod that holds so many MiB, in the cgroup of its name.
func (m *machine) pod(name string, mebi int, ignoring string) (ended <-chan struct{}) {
	m.Helper()
	group := m.memoryGroup("node/kubepods/" + name)
	script := fmt.Sprintf("mkdir -p %[1]s && echo $$ >%[1]s/cgroup.procs && trap '%[3]s' TERM; head -c %[2]dM /dev/zero | tail | sleep 1000", group, mebi, ignoring)
	c := m.inside(m.Context(), "setsid", "sh", "-c", script)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(m, c.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Wait() // which says that it was killed
	}()
	m.Cleanup(func() {
		_, _, _ = m.try("sh", "-c", "kill -9 $(cat "+group+"/cgroup.procs)")
		<-done
	})
	return done
}

const manifest = `apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, uid: 00000000-0000-4000-8000-00000000000%d, annotations: {evictd.io/cgroup: %[1]s}}
spec: {nodeName: n1, containers: [{name: c, image: none, resources: {requests: {memory: 1Mi}}}]}
`

func (m *machine) evicts() {
	m.configure("native", "64Mi", "")
	m.write("etc/evictd/pods/bystander.yaml", fmt.Sprintf(manifest, "bystander", 1))
	m.write("etc/evictd/pods/greedy.yaml", fmt.Sprintf(manifest, "greedy", 2))
	m.do("systemctl", "restart", daemon)
	bystander := m.pod("bystander", 20, ":")
	await(m, "the pods to be known", func() bool { return strings.Contains(m.do("evictd", "status"), "default/bystander") })
	greedy := m.pod("greedy", 185, ":")
	select {
	case <-greedy:
	case <-m.Context().Done():
	}
	await(m, "the end of the eviction to be logged", func() bool { return strings.Contains(m.log(daemon), "msg=evicted pod=default/greedy") })
	select {
	case <-bystander:
		m.Error("the bystander is dead, too")
	default:
	}
	for line := range strings.Lines(m.log(daemon)) {
		if strings.Contains(line, "SCHED_FIFO") { // on cgroup v1 without realtime runtime
			continue
		}
		if strings.Contains(line, "operation not permitted") || strings.Contains(line, "function not implemented") {
			m.Errorf("the sandbox is in the way: %s", line)
		}
	}
}

// isExamined has a drop-in that grants the daemon less than root has, as the caller.
func (m *machine) isExamined() {
	const dropIn = "etc/systemd/system/evictd.service.d/less.conf"
	shows := func(line string) {
		m.Helper()
		m.do("systemctl", "daemon-reload")
		m.do("systemctl", "restart", daemon)
		wanted := regexp.MustCompile(fmt.Sprintf(`(?m)^%s by evictd, process %s$`, line, m.property(daemon, "MainPID")))
		await(m, "doctor to show "+wanted.String(), func() bool { return wanted.MatchString(m.do("evictd", "doctor")) })
	}
	shows(`ok +CAP_SYS_PTRACE +held`)
	if text := m.do("evictd", "doctor"); !strings.Contains(text, "evictd is the unit evictd.service of systemd") {
		m.Errorf("doctor does not show the unit: %s", text)
	}
	m.write(dropIn, "[Service]\nCapabilityBoundingSet=\nCapabilityBoundingSet=CAP_KILL CAP_DAC_OVERRIDE CAP_SYS_RESOURCE CAP_SYS_NICE\n")
	shows(`-- +CAP_SYS_PTRACE +not held`)
	require.NoError(m, os.Remove(filepath.Join(m.root, dropIn)))
	shows(`ok +CAP_SYS_PTRACE +held`)
}

func (m *machine) isWatched() {
	before := m.property(daemon, "NRestarts")
	main := m.pidOf(daemon)
	require.NoError(m, syscall.Kill(main, syscall.SIGSTOP))
	await(m, "the watchdog to start it again", func() bool {
		return m.property(daemon, "NRestarts") != before && m.property(daemon, "ActiveState") == "active" && m.pidOf(daemon) != main
	})
	if logged := m.do("journalctl", "--no-pager", "--quiet", "--output=cat", "UNIT="+daemon); !strings.Contains(logged, "Watchdog timeout") {
		m.Errorf("the manager logs %s", logged)
	}
}

func (m *machine) hasAgent() {
	m.do("systemctl", "start", "evictd-apiserver.service")
	m.do("rm", "-f", "/etc/evictd/pods/bystander.yaml", "/etc/evictd/pods/greedy.yaml")
	m.configure("native", "64Mi", "server: unix:/run/evictd/api.sock")
	m.do("systemctl", "restart", daemon)
	await(m, "the node to be registered", func() bool { return strings.Contains(m.api(http.MethodGet, "nodes/n1", ""), `"Ready"`) })
	unit := strings.Fields(m.do("systemctl", "list-units", "--plain", "--no-legend", "--state=active", agentUnits))
	if len(unit) == 0 {
		m.Fatal("no agent of the service manager's runs")
	}
	status := require.ReadFile(m, fmt.Sprintf("/proc/%d/status", m.pidOf(unit[0])))
	const readSearch = "CapEff:\t0000000000000004\n"
	if text := string(status); !strings.Contains(text, readSearch) || strings.Contains(text, "Uid:\t0\t") || !strings.Contains(text, "NoNewPrivs:\t1\n") {
		m.Errorf("the agent is\n%s", text)
	}
}

// api asks the embedded API of the machine, over its socket.
func (m *machine) api(method, path, body string) string {
	m.Helper()
	client := process.Client(filepath.Join(m.root, "run/evictd/api.sock"))
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(m.Context(), method, "http://evictd/api/v1/"+path, strings.NewReader(body))
	require.NoError(m, err)
	request.Header.Set("Content-Type", "application/yaml")
	answer, err := client.Do(request)
	require.NoError(m, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(m, err)
	return string(text)
}

const clusterPod = `apiVersion: v1
kind: Pod
metadata: {name: stubborn, namespace: default}
spec:
  nodeName: n1
  terminationGracePeriodSeconds: 600
  containers: [{name: c, image: none, resources: {requests: {memory: 1Mi}}}]
`

// bareContainer is what runc makes a container of.
const bareContainer = `{"ociVersion": "1.0.2", "root": {"path": "rootfs"},
"process": {"args": ["/bin/sleep", "1000"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "env": ["PATH=/bin"]},
"mounts": [{"destination": "/proc", "source": "proc", "type": "proc"},
	{"destination": "/bin", "source": "/bin", "type": "bind", "options": ["rbind", "ro"]},
	{"destination": "/lib", "source": "/lib", "type": "bind", "options": ["rbind", "ro"]},
	{"destination": "/lib64", "source": "/lib64", "type": "bind", "options": ["rbind", "ro"]}],
"linux": {"cgroupsPath": "/node/kubepods/bare", "namespaces": [{"type": "pid"}, {"type": "mount"}]}}`

func (m *machine) seesBareContainers() {
	harness.Need(m, "runc", "runc")
	m.write("run/bare/config.json", bareContainer)
	m.do("mkdir", "-p", "/run/bare/rootfs")
	m.Cleanup(func() { _, _, _ = m.try("runc", "delete", "--force", "bare") })
	if _, _, err := m.try("sh", "-c", "runc run --detach --bundle /run/bare bare </dev/null >/run/bare/log 2>&1"); err != nil {
		m.Skip("skipped: runc runs nothing in namespaces here:", err, m.do("tail", "-n", "1", "/run/bare/log"))
	}
	m.configure("native", "16Mi", "runcState: /run/runc")
	m.do("systemctl", "restart", daemon)
	await(m, "the container to be seen", func() bool { return strings.Contains(m.do("evictd", "status"), "runc/bare") })
}

// resumes has a pod that ignores SIGTERM, and twenty seconds for it.
func (m *machine) resumes() {
	m.configure("native", "16Mi", `server: unix:/run/evictd/api.sock
evictionSoft: {memory.available: 128Mi}
evictionSoftGracePeriod: {memory.available: 100ms}
evictionMaxPodGracePeriod: 20`)
	m.do("systemctl", "restart", daemon)
	created := m.api(http.MethodPost, "namespaces/default/pods", clusterPod)
	uid := regexp.MustCompile(`"uid": ?"([^"]+)"`).FindStringSubmatch(created)
	if uid == nil {
		m.Fatalf("create a pod: %s", created)
	}
	stubborn := m.pod("burstable/pod"+uid[1], 150, "")
	get := func() string { return m.api(http.MethodGet, "namespaces/default/pods/stubborn", "") }
	await(m, "the API to show the decision", func() bool { return strings.Contains(get(), `"DisruptionTarget"`) })
	select {
	case <-stubborn:
		m.Fatal("the pod did not ignore SIGTERM")
	default:
	}
	before := m.property(daemon, "NRestarts")
	m.do("systemctl", "kill", "--kill-whom=main", "--signal=KILL", daemon)
	select {
	case <-stubborn:
	case <-time.After(wait.Limit):
		m.Error("the pod outlives its grace")
	}
	if restarts := m.property(daemon, "NRestarts"); restarts == before {
		m.Error("evictd was not started again")
	}
}

func (m *machine) refusesBadInput() {
	m.configure("native", "lots", "")
	m.do("systemctl", "restart", daemon)
	if status := m.do("evictd", "status"); !strings.Contains(status, "the configuration is refused") || !strings.Contains(status, "lots") {
		m.Errorf("evictd does not say which configuration it refuses: %s", status)
	}
	m.do("rm", "/var/lib/evictd/configuration.accepted")
	_, _, _ = m.try("systemctl", "restart", daemon)
	await(m, "the service to have failed", func() bool { return m.property(daemon, "ActiveState") == "failed" })
	if code, result := m.property(daemon, "ExecMainStatus"), m.property(daemon, "Result"); code != "2" || result != "exit-code" {
		m.Errorf("exit %s, %s", code, result)
	}
}

func (m *machine) servesPort() {
	const address = "127.0.0.1:9464"
	m.write("etc/systemd/system/evictd.socket.d/port.conf", "[Socket]\nListenStream="+address+"\n")
	m.configure("native", "48Mi", "statusAddress: "+address)
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "stop", daemon)
	m.do("systemctl", "restart", "evictd.socket")
	m.do("systemctl", "start", daemon)
	if status := m.do("evictd", "status", "--status-address="+address); !strings.Contains(status, "hard 48Mi") {
		m.Errorf("evictd status: %s", status)
	}
	await(m, "the socket that is not used to be logged", func() bool { return strings.Contains(m.log(daemon), "holds a socket that is not used here") })
	m.do("rm", "-r", "/etc/systemd/system/evictd.socket.d")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "stop", daemon)
	m.do("systemctl", "restart", "evictd.socket")
}

func (m *machine) upgrades() {
	m.configure("native", "48Mi", "")
	main := m.property(daemon, "MainPID")
	m.do("dpkg", "--install", "--force-unsafe-io", "/root/evictd.deb")
	await(m, "the new daemon", func() bool {
		return m.property(daemon, "MainPID") != main && m.property(daemon, "ActiveState") == "active"
	})
	if status := m.do("evictd", "status"); !strings.Contains(status, "hard 48Mi") {
		m.Errorf("the configuration has changed: %s", status)
	}
}

// kubeconfig of an API server that does not exist: a connection refused shows that it was read.
const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: secret-of-the-test}}]
`

// hasCredential has systemd hand the agent its kubeconfig as docs/install.md shows,
// and the scheduler its own from the credential store.
func (m *machine) hasCredential() {
	const theirs = "etc/credstore/evictd-scheduler.kubeconfig"
	for _, path := range []string{"etc/evictd/kubeconfig", theirs} {
		m.write(path, kubeconfig)
		m.do("chmod", "600", "/"+path)
	}
	m.write("etc/systemd/system/evictd-agent@.service.d/credential.conf", `[Service]
LoadCredential=kubeconfig:/etc/evictd/kubeconfig
ExecStart=
ExecStart=/usr/bin/evictd-agent run --kubeconfig=%d/kubeconfig
AmbientCapabilities=
CapabilityBoundingSet=
`)
	m.configure("native", "48Mi", "kubeconfig: /etc/evictd/kubeconfig")
	m.do("systemctl", "daemon-reload")
	m.do("systemctl", "restart", daemon)
	await(m, "the API server to be found away", func() bool {
		return strings.Contains(m.do("evictd", "status"), "127.0.0.1:1: connect: connection refused")
	})
	unit := strings.Fields(m.do("systemctl", "list-units", "--plain", "--no-legend", "--state=active", agentUnits))
	if len(unit) == 0 {
		m.Fatal("no agent of the service manager's runs")
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pidOf(unit[0])))
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000\n") {
		m.Errorf("the agent is\n%s%v", status, err)
	}
	m.write("etc/default/evictd-scheduler", "EVICTD_SCHEDULER_FLAGS=--kubeconfig=/run/credentials/evictd-scheduler.service/evictd-scheduler.kubeconfig\n")
	m.do("systemctl", "start", "--no-block", "evictd-scheduler.service")
	await(m, "the scheduler to look for its API server", func() bool {
		return strings.Contains(m.log("evictd-scheduler.service"), "127.0.0.1:1: connect: connection refused")
	})
	m.do("systemctl", "stop", "evictd-scheduler.service")
	if all := m.do("journalctl", "--no-pager", "--quiet"); strings.Contains(all, "secret-of-the-test") {
		m.Error("the log has the token")
	}
	m.do("rm", "-r", "/etc/systemd/system/evictd-agent@.service.d", "/"+theirs, "/etc/evictd/kubeconfig")
	m.write("etc/default/evictd-scheduler", "EVICTD_SCHEDULER_FLAGS=--server=unix:/run/evictd/api.sock\n")
	m.do("systemctl", "daemon-reload")
}

// returns takes the package away, but for its configuration, and brings it back.
func (m *machine) returns() {
	m.configure("native", "48Mi", "")
	m.do("dpkg", "--remove", "--force-unsafe-io", "evictd")
	await(m, "everything to have ended, the agent by itself", func() bool {
		return m.do("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "evictd*.service", "evictd*.socket") == ""
	})
	m.do("dpkg", "--install", "--force-depends", "--force-unsafe-io", "/root/evictd.deb")
	await(m, "evictd to be up again", func() bool { return m.property(daemon, "ActiveState") == "active" })
	if status := m.do("evictd", "status"); !strings.Contains(status, "hard 48Mi") {
		m.Errorf("the configuration has changed: %s", status)
	}
	m.do("systemctl", "start", "evictd-apiserver.service", "evictd-scheduler.service")
}

func (m *machine) isPurged() {
	m.do("systemctl", "start", "evictd-scheduler.service")
	await(m, "the scheduler to be up", func() bool { return m.property("evictd-scheduler.service", "ActiveState") == "active" })
	m.do("dpkg", "--purge", "--force-unsafe-io", "evictd")
	if units := m.do("systemctl", "list-units", "--plain", "--no-legend", "--state=active", "evictd*.service", "evictd*.socket"); units != "" {
		m.Errorf("still there: %s", units)
	}
	for _, path := range []string{"/etc/evictd", "/etc/default/evictd-scheduler", "/var/lib/evictd", "/run/evictd", "/usr/bin/evictd"} {
		if _, err := os.Lstat(m.root + path); !os.IsNotExist(err) {
			m.Errorf("%s is still there: %v", path, err)
		}
	}
	if links := m.do("find", "/etc/systemd/system", "-name", "evictd*.service", "-o", "-name", "evictd*.socket"); links != "" {
		m.Errorf("still there: %s", links)
	}
}
