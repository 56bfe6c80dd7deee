// Package vm_test boots virtual machines, under software emulation and without a
// network: Debian with systemd and cgroup v2, and once v1. There it installs the
// built package and runs tests of other packages, among them those of test/node that
// take a whole machine. Nothing of the emulation's own speed is asserted.
package vm_test

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/test/guest"
	"github.com/evictd/evictd/test/harness"
)

// boot is one life of a machine.
type boot struct {
	name   string
	kernel string // arguments
	kept   bool   // it continues with the disk of the boot before
	memory int    // MiB; 0 is 1024
	limit  time.Duration
	setup  string   // commands of the shell before the suites
	files  []string // of the source tree that the suites read
	build  []string // packages of programs, which go to bin beside cmd
	suites []guest.Suite
}

// limit of one boot, where it has none of its own; the emulation takes a minute for what
// takes a second.
const limit = 30 * time.Minute

// silent is how long a machine's console may be silent. The payload writes a line every 10 s by
// the machine's clock, however long a test takes.
const silent = 5 * time.Minute

// The tests of test/node that run in a machine, beside those that take the whole of it.
const (
	// nodes are tests of nodes in bounded cgroups: memory, process ids, disk, graces of soft
	// thresholds, restarts, readers, usage outside pods, limits that are not evictd's, a second evictd,
	// large pods.
	nodes = "^Test(Leaker|SoftVictimDies|SoftVictimThatKeeps|HardThreshold|Pressure|ForkBomb|PodThatFills|PodsCgroupThat|PodsThatReach|WhatEvictdRemembers|ReadersDoNot|ANodeIsNot|ALimitOf|ASecondEvictd|PodsOfAMegabyte)"
	// containers are tests of nodes whose containers are restarted and resized.
	containers = "^TestAContainer"
	// strange are tests of nodes in states that differ on cgroup v2.
	strange = "^TestStrange(Nodes|Kubelet|Services)"
	// faults are tests of nodes where something else fails, or is hostile.
	faults = "^Test(WithEverything|AGraceDoesNot|Pods?Whose|WhatTheKernel|PodThatHides|WhatIsNo)"
	// campaigns are tests that take long or kill much.
	campaigns = "^TestCampaign(MemoryBombs|MixedRuns|Kill|PageCache|WithEverything)"
)

// Variables of suites: the layout of the pods' cgroups below kubepods.slice.
const systemd = "EVICTD_CGROUP_DRIVER=systemd"

var boots = []boot{
	{name: "v2", suites: []guest.Suite{
		{Package: "cgroup", Run: "Stall"}, // what these two select needs more of the kernel than Debian's user-mode kernel has in test/v2
		{Package: "stats/collect", Run: "Quota"},
		{Package: "test/node", Run: "^TestMachine"},
		{Package: "test/node", Run: containers},
		{Package: "test/node", Run: "^TestCutOff"},
	}},
	{name: "v2 again", kept: true, suites: []guest.Suite{{Package: "test/node", Run: "^TestAfterCutOff"}}},
	// What does not differ by the cgroup hierarchy runs on v2 alone.
	{name: "v1", kernel: "systemd.unified_cgroup_hierarchy=0", suites: []guest.Suite{
		{Package: "test/node", Run: "^TestMachine", Skip: "(RelievesItsDisk|Reloads|FindsPods|Continues)"},
	}},
	// A kubelet with a containerd and evictd's API.
	{
		name: "v2 kubelet", memory: 2048, setup: kubeletAddress,
		files: []string{"go.mod", "test/containerd/bin", "test/containerd/parts", "test/controlplane/bin/kubelet"},
		build: []string{"test/containerd/cmd/workload"},
		suites: []guest.Suite{
			{Package: "test/containerd/cluster", Run: "^TestContainersOfAMachineAreRestartedAndResized$", Env: systemd + " EVICTD_TRANSITION=20s"},
			{Package: "test/node", Run: strange},
		},
	},
}

// kubeletAddress gives nodes an address that is not of loopback, which kubelets need.
const kubeletAddress = `printf '[Match]\nName=lo\n[Network]\nAddress=192.0.2.1/32\n' >/etc/systemd/network/lo.network
systemctl start systemd-networkd
echo '192.0.2.1 n1 n2' >>/etc/hosts
`

// campaign are the boots of TestCampaignVirtualMachine.
var campaign = []boot{
	{name: "v2 cgroupfs nodes", memory: 2048, limit: 2 * time.Hour, suites: []guest.Suite{{Package: "test/node", Run: nodes}, {Package: "test/node", Run: faults}}},
	{name: "v2 cgroupfs", memory: 2048, limit: 6 * time.Hour, suites: []guest.Suite{{Package: "test/node", Run: campaigns, Env: "EVICTD_CAMPAIGN=1"}}},
	{name: "v2 systemd machine", limit: 2 * time.Hour, suites: []guest.Suite{{Package: "test/node", Run: "^TestMachine", Env: "EVICTD_CAMPAIGN=1 " + systemd}}},
	{name: "v2 systemd nodes", memory: 2048, limit: 2 * time.Hour, suites: []guest.Suite{{Package: "test/node", Run: nodes, Env: systemd}}},
	{name: "v2 systemd", memory: 2048, limit: 6 * time.Hour, suites: []guest.Suite{{Package: "test/node", Run: campaigns, Env: "EVICTD_CAMPAIGN=1 " + systemd}}},
}

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

func TestVirtualMachine(t *testing.T) {
	m := newMachine(t, "make test-all PARTS=vm")
	passed := true
	for _, b := range boots {
		before := passed
		passed = t.Run(b.name, func(t *testing.T) {
			if b.kept && !before {
				t.Skip("skipped: it continues with the disk of the boot before, which failed")
			}
			m.boot(t, b)
		})
	}
}

// TestCampaignVirtualMachine runs campaigns of test/node on cgroup v2, with the pods' cgroups
// of either driver. EVICTD_BOMBS, EVICTD_RUNS and EVICTD_ROUNDS say how much.
func TestCampaignVirtualMachine(t *testing.T) {
	m := newMachine(t, "make vm-campaign")
	for _, b := range campaign {
		t.Run(b.name, func(t *testing.T) { m.boot(t, b) })
	}
}

// TestComparison checks nothing: each line that begins with | is one run of a memory
// bomb beside one of the out-of-memory daemons.
func TestComparison(t *testing.T) {
	newMachine(t, "make bench-vm").boot(t, boot{name: "v2", suites: []guest.Suite{{Package: "test/node", Run: "^TestBesidePeers"}}})
}

// TestNotices judges nothing: each line that begins with | compares evictd with and without marks of
// memory.high, or is what its passes cost.
func TestNotices(t *testing.T) {
	newMachine(t, "make bench-notices").boot(t, boot{name: "v2", limit: 80 * time.Minute, suites: []guest.Suite{{Package: "test/node", Run: "^TestCostOf"}}})
}

// TestLadder judges nothing: each line that begins with | is a shortage of memory with or without a step
// before an eviction.
func TestLadder(t *testing.T) {
	newMachine(t, "make bench-ladder").boot(t, boot{name: "v2", limit: 60 * time.Minute, suites: []guest.Suite{{Package: "test/node", Run: "^TestLadder$"}}})
}

// TestStallFigures judges nothing: each line that begins with | is what a reader reads back, and how long tasks wait.
func TestStallFigures(t *testing.T) {
	newMachine(t, "make bench-stall").boot(t, boot{name: "v2", suites: []guest.Suite{{Package: "test/node", Run: "^TestStallFigures$"}}})
}

// TestSome runs the tests of test/node that EVICTD_VM_RUN selects, a regular expression, on cgroup v2.
func TestSome(t *testing.T) {
	run := os.Getenv("EVICTD_VM_RUN")
	if run == "" {
		t.Skip("skipped: EVICTD_VM_RUN selects no test")
	}
	newMachine(t, "go test -run TestSome ./test/vm").boot(t, boot{name: "v2 some", suites: []guest.Suite{{Package: "test/node", Run: run}}})
}

// TestCluster runs scenarios of test/containerd/cluster on cgroup v2 with the driver systemd.
func TestCluster(t *testing.T) {
	m := newMachine(t, "make vm-cluster")
	harness.Need(t, "qemu-system-x86_64", "qemu-system-x86")
	m.boot(t, clusters)
}

// TestChart installs the chart beside real kubelets in a machine that has no evictd of a package.
func TestChart(t *testing.T) {
	m := newMachine(t, "make vm-chart")
	if !isDir("../../bin/image/evictd") {
		t.Skip("skipped: there is no bin/image/evictd: make vm-chart builds it")
	}
	m.boot(t, chart)
}

func newMachine(t *testing.T, target string) *machine {
	t.Helper()
	if os.Getenv("EVICTD_VM") == "" {
		t.Skipf("skipped: %s boots a machine, which takes minutes", target)
	}
	found, err := filepath.Glob("../../bin/evictd_*_" + runtime.GOARCH + ".deb")
	if err != nil || len(found) != 1 {
		t.Skip("skipped: there is no bin/evictd_*.deb: make deb builds it")
	}
	return &machine{dir: t.TempDir(), deb: found[0], image: image(t), watch: (*emulator).watch}
}

// image makes a root filesystem and a kernel, or finds those of a run before.
func image(t *testing.T) (dir string) {
	t.Helper()
	harness.Need(t, "qemu-system-x86_64", "qemu-system-x86")
	recipe, err := os.ReadFile("rootfs.sh")
	cache, err1 := os.UserCacheDir()
	if err := errors.Join(err, err1); err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(cache, "evictd-vm", fmt.Sprintf("%x", sha256.Sum256(recipe))[:12])
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	out, err := exec.CommandContext(t.Context(), "nice", "-n", "5", "sh", "rootfs.sh", dir).CombinedOutput()
	const cannot = 77
	if ended, is := errors.AsType[*exec.ExitError](err); is && ended.ExitCode() == cannot {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Skip("skipped: no root filesystem can be made:", lines[len(lines)-1])
	}
	if err != nil {
		t.Fatalf("rootfs.sh: %v\n%s", err, out)
	}
	t.Logf("the root filesystem took %v", time.Since(begun).Round(time.Second))
	return dir
}

// machine is what boots have in common.
type machine struct {
	dir   string
	deb   string // the package
	image string
	watch func(*emulator, patience) *stall
}

// boot starts the machine, and has each test that ran in there for a test of t. Where the emulator
// hangs, which is no fault of what runs in it, the boot is made again.
func (m *machine) boot(t *testing.T, b boot) {
	for _, file := range b.files {
		if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
			t.Skipf("skipped: there is no %s: make cluster builds what a kubelet needs", file)
		}
	}
	payload := m.payload(t, b)
	if s := m.attempt(t, b, payload, "console"); s != nil {
		t.Logf("The emulator hung: %s, and the kernel did not answer a non-maskable interrupt. This boot is made again from a fresh disk.\n%s", s.reason, s.record)
		if s := m.attempt(t, b, payload, "second console"); s != nil {
			t.Errorf("the emulator hung again: %s\n%s", s.reason, s.record)
		}
	}
}

// attempt starts the machine once. It returns the stall of an emulator, and reports all else.
func (m *machine) attempt(t *testing.T, b boot, payload, console string) *stall {
	disk, write := filepath.Join(m.dir, "disk"), ""
	if b.kept {
		write = ",snapshot=on" // the disk stays as it is
	} else {
		run(t, "cp", "--sparse=always", filepath.Join(m.image, "disk"), disk)
	}
	begun := time.Now()
	e := emulate(t, filepath.Join(m.dir, b.name+"."+console), hardware{
		kernel:    filepath.Join(m.image, "kernel"),
		arguments: "root=/dev/nvme0n1 rw systemd.show_status=0 " + b.kernel,
		memory:    b.memory,
		drives:    []string{"cache=unsafe,file=" + disk + write, "readonly=on,file=" + payload},
	})
	stalled := make(chan *stall, 1)
	go func() {
		stalled <- m.watch(e, patience{all: cmp.Or(b.limit, limit), silent: silent, answer: time.Minute, apart: 5 * time.Second})
	}()
	left, last := guest.Report(t, e.out, b.suites)
	s := <-stalled
	_, state := e.End()
	t.Logf("the machine ran for %v", time.Since(begun).Round(time.Second))
	switch {
	case s != nil && !s.answered:
		s.reason += fmt.Sprintf("; its last line was %q", last)
		return s
	case s != nil:
		t.Errorf("the machine hung: %s; what its kernel answered follows", s.reason)
	case state.Success() && len(left) == 0:
		return nil
	}
	t.Errorf("%v %s; without a result: %v; its last line was %q; the console:\n%s",
		state, e.complaints.String(), left, last, end(e.printed(0), 256<<10))
	return nil
}

// clusters is the boot of TestCluster: a cluster of test/containerd/cluster whose kubelets have
// the driver systemd.
var clusters = boot{
	name: "v2 cluster", memory: 4096, limit: 60 * time.Minute,
	setup: kubeletAddress,
	files: []string{"go.mod", "deploy/rbac", "deploy/token.yaml", "test/containerd/bin", "test/containerd/parts", "test/controlplane/bin"},
	build: []string{"test/containerd/cmd/workload"},
	// In the emulated machine a request can take longer than the shortage.
	suites: []guest.Suite{{Package: "test/containerd/cluster", Run: evictions, Env: systemd + " EVICTD_TRANSITION=60s"}},
}

// chart is the boot of TestChart. The programs of the package are moved to where no installer finds them.
var chart = boot{
	name: "v2 chart", memory: 4096, limit: 60 * time.Minute,
	setup: kubeletAddress + `mkdir /run/programs
cp /usr/bin/evictd /usr/bin/evictd-agent /payload/bin/kubectl-evictd /run/programs
dpkg --purge evictd >/run/purge 2>&1 || cat /run/purge
`,
	files:  []string{"go.mod", "deploy", "bin/image/evictd", "test/containerd/bin", "test/containerd/parts", "test/controlplane/bin", "test/deploy/bin"},
	build:  []string{"test/containerd/cmd/workload", "cmd/kubectl-evictd"},
	suites: []guest.Suite{{Package: "test/containerd/cluster", Run: "^TestTheChartInstallsTheUnitOfAMachine$", Env: systemd + " EVICTD_PROGRAMS=/run/programs"}},
}

// evictions are scenarios of test/containerd/cluster.
const evictions = "^TestWhatTheAPIServerShowsOfAnEvictionIsTrueAndStays$/^(statefulset|deployment-with-a-sidecar-and-evictd-is-killed|exit-0-on-sigterm|soft-with-a-long-grace|budget-is-overridden|without-api-server|container-is-restarted|container-is-resized|resize-is-deferred)$"

// payload makes a disk with the package, the tests and what starts them.
func (m *machine) payload(t *testing.T, b boot) (disk string) {
	t.Helper()
	dir := filepath.Join(m.dir, b.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "cp", m.deb, filepath.Join(dir, "evictd.deb"))
	var script strings.Builder
	script.WriteString("while sleep 10; do cat /proc/uptime; done >/dev/ttyS0 &\n")
	script.WriteString("export EVICTD_MACHINE=1 EVICTD_PROGRAMS=/usr/bin HOME=/root\n")
	for _, name := range []string{"EVICTD_BOMBS", "EVICTD_ROUNDS", "EVICTD_RUNS", "EVICTD_SMALLEST"} {
		fmt.Fprintf(&script, "export %s=%s\n", name, os.Getenv(name))
	}
	if !b.kept {
		script.WriteString("dpkg --install --force-unsafe-io /payload/evictd.deb >/run/install 2>&1 || cat /run/install\n")
	}
	script.WriteString(b.setup)
	for _, file := range b.files {
		at := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		run(t, "cp", "-r", filepath.Join("../..", file), at)
	}
	for _, pkg := range b.build {
		guest.Build(t, "../..", pkg, filepath.Join(dir, pkg, "../../bin", filepath.Base(pkg)), "build")
	}
	for _, s := range b.suites {
		if at := filepath.Join(dir, s.Package); !isDir(at) {
			guest.Build(t, "../..", s.Package, filepath.Join(at, "test"), "test", "-c")
			if data := filepath.Join("../..", s.Package, "testdata"); isDir(data) {
				run(t, "cp", "-r", data, at)
			}
		}
		fmt.Fprintf(&script, "cd /payload/%s && %s", s.Package, s.Command("./test", "-test.parallel=1", fmt.Sprintf("-test.timeout=%v", cmp.Or(b.limit, limit)-2*time.Minute)))
	}
	script.WriteString("sleep 1; echo b >/proc/sysrq-trigger\n") // as a power failure does
	disk = dir + ".disk"
	err := os.WriteFile(filepath.Join(dir, "run"), []byte(script.String()), 0o755)
	if err != nil {
		t.Fatal(err)
	}
	run(t, harness.Need(t, "mke2fs", "e2fsprogs"), "-q", "-t", "ext4", "-m", "0", "-O", "^has_journal", "-d", dir, disk, "1800M")
	return disk
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}
