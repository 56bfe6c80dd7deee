package node_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/test/harness"
)

// hostileNames are what a process may call itself to be taken for another.
var hostileNames = []string{`)\x20R\x201\x201\x201`, `a\n7\x20(kubelet`, `\x1b]0;mine\x07`, "kubelet"}

func TestPodsWhoseProcessesCallThemselvesSomethingElseAreEvictedAllTheSame(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	var leakers []*harness.Pod
	for i, name := range hostileNames[:2] {
		m := n.Manifest(fmt.Sprintf("leaker-%d", i), sandbox.Spec{})
		p := n.StartIn(m, n.Group+"/"+m.Name, nil)
		m.Annotations = map[string]string{"evictd.io/session": fmt.Sprint(p.PID())}
		p.Do(`rename "%s"`, name)
		p.Do("fork 3")
		n.Write(m)
		leakers = append(leakers, p)
	}
	d := n.Protect(n.Command(bySession...), nil)
	d.AwaitPods(memorySignal, leakers...)
	for _, p := range leakers {
		p.Send("hold 150Mi")
		d.AwaitGone(p)
	}
	d.MustHaveEvicted(leakers...)
}

func TestWhatTheKernelRepeatsOfAPodReachesNoTerminal(t *testing.T) {
	t.Parallel()
	needKernelLog(t)
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	p := n.Start("hostile", sandbox.Spec{})
	n.Make(p.Container(), cgroup.Limits{Memory: stats.Known(32 * harness.MiB)})
	p.Do(`rename "%s"`, hostileNames[2])
	d := n.Evictd(sandbox.EvictionHard("memory.available<16Mi"))
	d.AwaitPods(memorySignal, p)
	p.Send("leak 0 100Mi")
	awaitKernelKill(d)
	shown, _, code := evictctl(t, "status", "--status-address=unix:"+n.Socket())
	if code != 0 || !strings.Contains(shown, `x1b]0;mine`) {
		t.Errorf("exit code %d: %s", code, shown)
	}
	for _, text := range []string{shown, d.Log()} {
		if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }); i >= 0 {
			t.Errorf("%q reaches the terminal", text[i:])
		}
	}
}

// TestPodThatNestsItsGroupsDies has the process of a pod where only a walk to the bottom finds it, as a container with a
// cgroup hierarchy of its own can.
func TestPodThatNestsItsGroupsDies(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	m := n.Manifest("leaker", sandbox.Spec{})
	leaker := n.StartIn(m, n.PodGroup(m)+strings.Repeat("/nested", 40), nil)
	n.Write(m)
	calm := n.Start("calm", sandbox.Spec{})
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, leaker, calm)
	press(leaker, 32)
	if e := d.AwaitGone(leaker); e.Freed == "" || e.Freed == "0" {
		t.Errorf("unexpected eviction %+v", e)
	}
	d.MustHaveEvicted(leaker)
	harness.MustRun(t, calm)
}

// TestPodThatLeavesItselfNoProcessorDies has the process of a pod where the pod's own programs have set a quota.
func TestPodThatLeavesItselfNoProcessorDies(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	m := n.Manifest("leaker", sandbox.Spec{})
	group := n.PodGroup(m) + "/container/nested/deep"
	n.Make(group, cgroup.Limits{CPUQuota: stats.Known(5000)})
	settings, err := n.Cgroups.CPUBoost(group, filepath.Dir(group))
	require.NoError(t, err)
	if len(settings) == 0 {
		t.Skip("skipped: no cpu controller here")
	}
	quota, lifted := settings[0].File, settings[0].Value
	leaker := n.StartIn(m, group, nil)
	n.Write(m)
	if text := content(t, quota); !strings.HasPrefix(text, "5000") {
		t.Fatalf("%s is %s, expected 5000", quota, text)
	}
	leaker.Do("ignore-term")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, leaker)
	press(leaker, 32)
	d.AwaitGone(leaker)
	d.MustHaveEvicted(leaker)
	if text := content(t, quota); !strings.HasPrefix(text, lifted) {
		t.Errorf("%s is %s after the eviction, expected %s", quota, text, lifted)
	}
}

// The kernel lets a group of v1 be renamed.
func TestPodWhoseCgroupIsMovedAsideDiesAllTheSame(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	leaker := n.Start("leaker", sandbox.Spec{})
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, leaker)
	at := filepath.Join(n.Cgroups.Mount("memory"), leaker.Group)
	if err := os.Rename(at, at+"-aside"); err != nil {
		t.Skip("skipped: cgroups cannot be renamed here:", err)
	}
	t.Cleanup(func() { _ = os.Rename(at+"-aside", at) })
	press(leaker, 32)
	e := d.AwaitEviction(leaker, harness.Gone)
	harness.Await(t, "the leaker to die", func() bool { return !leaker.Runs() })
	if e.Freed == "" {
		t.Errorf("unexpected eviction %+v", e)
	}
}

func TestPodThatHidesAFileDeeperThanAPathCanBeDiesOverItsSizeLimit(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	hider := n.Start("hider", sandbox.Spec{EmptyDirs: map[string]string{"scratch": "1Mi"}})
	honest := n.Start("honest", sandbox.Spec{EmptyDirs: map[string]string{"scratch": "1Mi"}})
	dir := hider.Volume(n.Dir, "scratch")
	honest.Volume(n.Dir, "scratch")
	err := errors.Join(unix.Mkfifo(dir+"/pipe", 0o600), os.Symlink("/", dir+"/root"), os.Symlink("loop", dir+"/loop"))
	at, opened := unix.Open(dir, unix.O_PATH, 0)
	name := strings.Repeat("d", 255)
	for range 100 {
		err = errors.Join(err, opened, unix.Mkdirat(at, name, 0o700))
		next, failed := unix.Openat(at, name, unix.O_PATH, 0)
		_ = unix.Close(at)
		at, opened = next, failed
	}
	require.NoError(t, errors.Join(err, opened))
	defer unix.Close(at)
	hidden, err := unix.Openat(at, "hidden", unix.O_CREAT|unix.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer unix.Close(hidden)
	if _, err := unix.Write(hidden, make([]byte, 3*harness.MiB)); err != nil {
		t.Fatal(err)
	}
	d := n.Evictd(sandbox.EvictionHard("memory.available<16Mi"))
	d.AwaitGone(hider)
	d.MustHaveEvicted(hider)
	harness.MustRun(t, honest)
}

func TestWhatIsNoManifestBlocksNothing(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	leaker := n.Start("leaker", sandbox.Spec{})
	dir := n.Manifests()
	err := errors.Join(
		unix.Mkfifo(dir+"/pipe.yaml", 0o600), unix.Mknod(dir+"/console.yaml", syscall.S_IFCHR|0o600, int(unix.Mkdev(5, 1))),
		os.Symlink("loop.yaml", dir+"/loop.yaml"), os.Symlink("/dev/zero", dir+"/zero.yaml"), os.Symlink("/proc/kmsg", dir+"/kmsg.yaml"),
		os.WriteFile(dir+"/large.yaml", nil, 0o600), os.Truncate(dir+"/large.yaml", 100*harness.MiB),
	)
	require.NoError(t, err)
	n.WriteFile("terminal.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\e[2J\\nMAINPID=1\"}\nspec: {containers: [{name: c}]}\n")
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, leaker)
	for _, why := range []string{"file=pipe.yaml", "file=console.yaml", "file=loop.yaml", "file=zero.yaml", "file=large.yaml", "file=terminal.yaml"} {
		d.AwaitLog(`msg="pod manifest skipped" ` + why)
	}
	press(leaker, 32)
	d.AwaitGone(leaker)
	d.MustHaveEvicted(leaker)
}

// mostGuard bounds the resident memory of an evictd, whatever a pod does.
const mostGuard = 48 * harness.MiB

// TestNoPodBlindsEvictd has a pod make something large of what evictd looks at, while another one leaks.
func TestNoPodBlindsEvictd(t *testing.T) {
	for name, hostile := range map[string]func(*testing.T, *harness.Node, *harness.Pod){
		"groups beside each other": func(t *testing.T, n *harness.Node, p *harness.Pod) {
			for i := range 1000 {
				n.Make(fmt.Sprint(p.Group, "/nested/", i), cgroup.Limits{})
			}
		},
		"groups in each other": func(t *testing.T, n *harness.Node, p *harness.Pod) {
			n.Make(p.Group+strings.Repeat("/n", 300), cgroup.Limits{})
		},
		"names": func(t *testing.T, n *harness.Node, p *harness.Pod) {
			dir, name := p.Volume(n.Dir, "scratch"), strings.Repeat("x", 240)
			for i := range 40_000 {
				require.NoError(t, os.WriteFile(fmt.Sprint(dir, "/", name, i), nil, 0o600))
			}
		},
		"links": func(t *testing.T, n *harness.Node, p *harness.Pod) {
			dir := p.Volume(n.Dir, "scratch")
			var all error
			for i := range 400 {
				file := fmt.Sprint(dir, "/", i)
				all = errors.Join(all, os.WriteFile(file, nil, 0o600))
				for link := range 100 {
					all = errors.Join(all, os.Link(file, fmt.Sprint(file, "-", link)))
				}
			}
			require.NoError(t, all)
		},
		"a quantity": func(_ *testing.T, n *harness.Node, p *harness.Pod) {
			m := p.Pod.DeepCopy()
			m.Annotations = map[string]string{eviction.ResizeAnnotation: "memory<=1e-99999999"}
			n.Write(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			pod := n.Start("hostile", sandbox.Spec{EmptyDirs: map[string]string{"scratch": "1Gi"}})
			hostile(t, n, pod)
			calm, leaker := n.Start("calm", sandbox.Spec{}), n.Start("leaker", sandbox.Spec{})
			d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
			d.AwaitPods(memorySignal, pod, calm, leaker)
			press(leaker, 32)
			d.AwaitGone(leaker)
			d.MustHaveEvicted(leaker)
			harness.MustRun(t, pod, calm)
			var most int64 // kB
			_, err := fmt.Sscan(procStatus(d, "VmHWM"), &most)
			if require.NoError(t, err); most<<10 > mostGuard {
				t.Errorf("evictd has had %d kB resident", most)
			}
		})
	}
}

// TestANodeOfMorePodsThanDescriptorsIsGuarded starts evictd with room for the groups of a few of the pods.
func TestANodeOfMorePodsThanDescriptorsIsGuarded(t *testing.T) {
	t.Parallel()
	const descriptors, pods = 256, 60
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	var all []*harness.Pod
	for i := range pods {
		m := n.Manifest(fmt.Sprintf("pod-%02d", i), sandbox.Spec{Request: "1Mi"})
		if i < pods-2 {
			n.T.Cleanup(sleepAs(n, m).wake)
			n.Write(m)
			continue
		}
		all = append(all, n.Start(m.Name, sandbox.Spec{Request: "1Mi"}))
	}
	calm, leaker := all[0], all[1]
	cmd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.EvictionHard("memory.available<64Mi"), sandbox.Housekeeping("1s"))
	limited := []string{"-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, descriptors), cmd.Path}
	d := n.Protect(exec.Command("/bin/sh", append(limited, cmd.Args[1:]...)...), nil)
	d.Await("evictd to measure the pods", func(s *nodestatus.Status) bool { return len(s.Ranking[memorySignal]) == pods })
	harness.Await(t, "evictd to say that it has few descriptors", func() bool { return strings.Contains(d.Log(), "LimitNOFILE") })
	press(leaker, 32)
	d.AwaitGone(leaker)
	d.MustHaveEvicted(leaker)
	harness.MustRun(t, calm)
}
