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
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// hostileNames are what a process may call itself to be taken for another.
var hostileNames = []string{`)\x20R\x201\x201\x201`, `a\n7\x20(kubelet`, `\x1b]0;mine\x07`, "kubelet"}

func TestPodsWhoseProcessesCallThemselvesSomethingElseAreEvictedAllTheSame(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	var leakers []*pod
	for i, name := range hostileNames[:2] {
		m := n.manifest(fmt.Sprintf("leaker-%d", i), podSpec{})
		p := n.startIn(m, n.group+"/"+m.Name, nil)
		m.Annotations = map[string]string{"evictd.io/session": fmt.Sprint(p.pid())}
		p.do(`rename "%s"`, name)
		p.do("fork 3")
		n.write(m)
		leakers = append(leakers, p)
	}
	d := n.launch(exec.Command(program, n.arguments("--node-memory=192Mi", "--eviction-hard=memory.available<64Mi")...), nil)
	d.awaitPods(memorySignal, leakers...)
	for _, p := range leakers {
		p.tell("leak 0 150")
		d.awaitEnd(p)
	}
	d.mustHaveEvicted(leakers...)
}

func TestWhatTheKernelRepeatsOfAPodReachesNoTerminal(t *testing.T) {
	t.Parallel()
	needKernelLog(t)
	n := newNode(t, nodeMemory, nodePIDs)
	p := n.start("hostile", podSpec{})
	if err := n.cgroups.Create(p.group+"/c", cgroup.Limits{Memory: stats.Known(32 * mib)}); err != nil {
		t.Fatal(err)
	}
	p.do(`rename "%s"`, hostileNames[2])
	d := n.run("--eviction-hard=memory.available<16Mi")
	d.awaitPods(memorySignal, p)
	p.tell("leak 0 100")
	d.awaitKernelKill()
	shown, _, code := evictctl(t, "status", "--status-address=unix:"+n.socket())
	if code != 0 || !strings.Contains(shown, `x1b]0;mine`) {
		t.Errorf("exit code %d: %s", code, shown)
	}
	for _, text := range []string{shown, d.Log.String()} {
		if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' }); i >= 0 {
			t.Errorf("%q reaches the terminal", text[i:])
		}
	}
}

// The kernel lets a group of v1 be renamed.
func TestPodWhoseCgroupIsMovedAsideDiesAllTheSame(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	leaker := n.start("leaker", podSpec{})
	d := n.run("--eviction-hard=memory.available<64Mi")
	d.awaitPods(memorySignal, leaker)
	at := filepath.Join(n.cgroups.Mount("memory"), leaker.group)
	if err := os.Rename(at, at+"-aside"); err != nil {
		t.Skip("skipped: cgroups cannot be renamed here:", err)
	}
	t.Cleanup(func() { _ = os.Rename(at+"-aside", at) })
	leaker.tell("leak 0 400")
	e := d.awaitEviction(leaker, func(e nodestatus.Eviction) bool { return !e.Gone.IsZero() })
	await(t, "the leaker to die", func() bool { return !leaker.lives() })
	if e.Freed == "" {
		t.Errorf("unexpected eviction %+v", e)
	}
}

func TestPodThatHidesAFileDeeperThanAPathCanBeDiesOverItsSizeLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	hider := n.start("hider", podSpec{emptyDirs: map[string]string{"scratch": "1Mi"}})
	honest := n.start("honest", podSpec{emptyDirs: map[string]string{"scratch": "1Mi"}})
	dir := hider.volume(n.dir, "scratch")
	honest.volume(n.dir, "scratch")
	err := errors.Join(unix.Mkfifo(dir+"/pipe", 0o600), os.Symlink("/", dir+"/root"), os.Symlink("loop", dir+"/loop"))
	at, opened := unix.Open(dir, unix.O_PATH, 0)
	name := strings.Repeat("d", 255)
	for range 100 {
		err = errors.Join(err, opened, unix.Mkdirat(at, name, 0o700))
		next, failed := unix.Openat(at, name, unix.O_PATH, 0)
		_ = unix.Close(at)
		at, opened = next, failed
	}
	if err := errors.Join(err, opened); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(at)
	hidden, err := unix.Openat(at, "hidden", unix.O_CREAT|unix.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(hidden)
	if _, err := unix.Write(hidden, make([]byte, 3*mib)); err != nil {
		t.Fatal(err)
	}
	d := n.run("--eviction-hard=memory.available<16Mi")
	d.awaitEnd(hider)
	d.mustHaveEvicted(hider)
	mustLive(t, honest)
}

func TestWhatIsNoManifestHoldsUpNobody(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	leaker := n.start("leaker", podSpec{})
	dir := n.manifests()
	err := errors.Join(
		unix.Mkfifo(dir+"/pipe.yaml", 0o600), unix.Mknod(dir+"/console.yaml", syscall.S_IFCHR|0o600, int(unix.Mkdev(5, 1))),
		os.Symlink("loop.yaml", dir+"/loop.yaml"), os.Symlink("/dev/zero", dir+"/zero.yaml"), os.Symlink("/proc/kmsg", dir+"/kmsg.yaml"),
		os.WriteFile(dir+"/large.yaml", nil, 0o600), os.Truncate(dir+"/large.yaml", 100*mib),
	)
	if err != nil {
		t.Fatal(err)
	}
	n.writeFile("terminal.yaml", []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: \"a\\e[2J\\nMAINPID=1\"}\nspec: {containers: [{name: c}]}\n"))
	d := n.run("--eviction-hard=memory.available<64Mi")
	d.awaitPods(memorySignal, leaker)
	for _, why := range []string{"file=pipe.yaml", "file=console.yaml", "file=loop.yaml", "file=zero.yaml", "file=large.yaml", "file=terminal.yaml"} {
		if !strings.Contains(d.Log.String(), `msg="pod manifest skipped" `+why) {
			t.Errorf("the log does not tell of %s", why)
		}
	}
	leaker.tell("leak 0 400")
	d.awaitEnd(leaker)
	d.mustHaveEvicted(leaker)
}
