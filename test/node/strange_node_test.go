package node_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// strange is a node in a state that evictd was not made on: what it guards there, and what it says. Empty fields are not
// asserted.
type strange struct {
	flags      []string
	says       string            // in the log
	unmeasured map[string]string // signals, and a part of the reason in the status and in what doctor finds
	appears    func()            // makes what was missing
	measured   string            // the signal that is measured then
	press      func()            // causes the shortage
	culprit    *harness.Pod      // is evicted, as
	evicted    string            // default/NAME where it is a pod
	spared     []*harness.Pod    // run on
}

// strangeNodes are the states, by name.
var strangeNodes = map[string]func(*harness.Node) strange{
	"the cgroup root has no limit of its own": func(n *harness.Node) strange {
		n.Group = filepath.Join(n.Group, "guest")
		n.Make(n.Group, cgroup.Limits{})
		return strange{}.leaks(n.Start("leaking", sandbox.Spec{}), n.Start("small", sandbox.Spec{Request: "30Mi"}))
	},
	"nodefs reports no size": func(n *harness.Node) strange {
		idle := n.Start("idle", sandbox.Spec{EmptyDirs: scratch})
		disk := mountAt(n, "disk", "ramfs", "")
		idle.Do("write %s/f 2Mi", idle.Volume(disk, "scratch"))
		return strange{
			flags:      []string{sandbox.NodeFs(disk), sandbox.EvictionHard("memory.available<80Mi,nodefs.available<10%,nodefs.inodesFree<5%")},
			says:       "the filesystem reports no size",
			unmeasured: map[string]string{"nodefs.available": "reports no size", "nodefs.inodesFree": "reports no size"},
		}.leaks(n.Start("leaking", sandbox.Spec{}), idle)
	},
	"imagefs reports no size": func(n *harness.Node) strange {
		images := mountAt(n, "images", "ramfs", "")
		return strange{
			flags:      []string{sandbox.ImageFs(images), sandbox.EvictionHard("nodefs.available<16Mi,imagefs.available<10%")},
			unmeasured: map[string]string{"imagefs.available": "reports no size"},
		}.fills(n, mountAt(n, "disk", "tmpfs", "size=64M"))
	},
	"nodefs is mounted late": func(n *harness.Node) strange {
		disk := filepath.Join(n.Dir, "disk")
		s := strange{
			flags:      []string{sandbox.EvictionHard("nodefs.available<16Mi")},
			says:       "a filesystem cannot be measured yet",
			unmeasured: map[string]string{"nodefs.available": "no such file or directory"},
			appears:    func() { mountAt(n, "disk", "tmpfs", "size=64M") },
		}
		return s.fills(n, disk)
	},
	"imagefs is mounted late": func(n *harness.Node) strange {
		return strange{
			flags:      []string{sandbox.ImageFs(filepath.Join(n.Dir, "images")), sandbox.EvictionHard("memory.available<80Mi,imagefs.available<10%")},
			says:       "a filesystem cannot be measured yet",
			unmeasured: map[string]string{"imagefs.available": "no such file or directory"},
		}.leaks(n.Start("leaking", sandbox.Spec{}), n.Start("small", sandbox.Spec{Request: "30Mi"}))
	},
	"a threshold is above the capacity of the disk under a mount point": func(n *harness.Node) strange {
		disk := mountAt(n, "disk", "tmpfs", "size=8M")
		s := strange{
			flags:      []string{sandbox.EvictionHard("nodefs.available<16Mi")},
			says:       "the threshold is not evaluated until a larger disk is mounted there",
			unmeasured: map[string]string{"nodefs.available": "is not below the capacity"},
			appears:    func() { mountAt(n, "disk", "tmpfs", "size=64M") },
		}
		return s.fills(n, disk)
	},
	"more is reserved of ephemeral storage than the disk under a mount point has": func(n *harness.Node) strange {
		disk := mountAt(n, "disk", "tmpfs", "size=8M")
		s := strange{
			flags:   []string{sandbox.SystemReserved("ephemeral-storage=20Mi"), sandbox.EvictionHard("nodefs.available<7Mi")},
			says:    "more is reserved than the disk has",
			appears: func() { mountAt(n, "disk", "tmpfs", "size=64M") },
		}
		return s.fills(n, disk)
	},
	"the directory of manifests is mounted late": func(n *harness.Node) strange {
		late := filepath.Join(n.Dir, "late")
		s := strange{
			flags:   []string{sandbox.PodManifests(late), sandbox.EvictionHard("memory.available<80Mi")},
			says:    "pod manifests cannot be read yet",
			appears: func() { require.NoError(n.T, os.Symlink(n.Manifests(), late)) },
		}
		return s.leaks(n.Start("leaking", sandbox.Spec{}), n.Start("small", sandbox.Spec{Request: "30Mi"}))
	},
	"the cgroup root is made late": func(n *harness.Node) strange {
		n.Group = filepath.Join(n.Group, "late")
		s := strange{
			flags:      []string{sandbox.EvictionHard("memory.available<80Mi")},
			says:       "the cgroup taken as the node cannot be measured yet",
			unmeasured: map[string]string{memorySignal: "cgroup is gone"},
			measured:   memorySignal,
		}
		s.appears = func() { n.Make(n.Group, cgroup.Limits{}) }
		return s
	},
	"a container fills the disk through its termination message": func(n *harness.Node) strange {
		disk := mountAt(n, "disk", "tmpfs", "size=64M")
		s := strange{flags: []string{sandbox.EvictionHard("nodefs.available<16Mi")}}.fills(n, disk)
		s.press = func() {
			dir := filepath.Join(disk, "pods", string(s.culprit.UID), "containers", "c")
			require.NoError(n.T, os.MkdirAll(dir, 0o755))
			s.culprit.Send("write %s/5f3a 52Mi", dir)
		}
		return s
	},
	"a pod is between two starts of a crash loop": func(n *harness.Node) strange {
		disk := mountAt(n, "disk", "tmpfs", "size=64M")
		s := strange{flags: []string{sandbox.EvictionHard("nodefs.available<16Mi")}}.fills(n, disk)
		volume := s.culprit.Volume(disk, "scratch")
		s.press = func() {
			s.culprit.Do("write %s/much 45Mi", volume)
			s.culprit.End()
			s.spared[0].Do("write %s/more 4Mi", s.spared[0].Volume(disk, "scratch"))
		}
		return s
	},
	"a volume of a pod is on another disk": func(n *harness.Node) strange {
		disk, other := mountAt(n, "disk", "tmpfs", "size=64M"), n.Start("other", sandbox.Spec{Priority: -10, EmptyDirs: scratch})
		volume := other.Volume(disk, "scratch")
		require.NoError(n.T, unix.Mount("tmpfs", volume, "tmpfs", 0, "size=64M"))
		n.T.Cleanup(func() { _ = unix.Unmount(volume, unix.MNT_DETACH) })
		other.Do("write %s/f 60Mi", volume)
		s := strange{flags: []string{sandbox.EvictionHard("nodefs.available<16Mi")}}.fills(n, disk)
		s.spared = append(s.spared, other)
		return s
	},
	"a protected pod fills the disk, and no other holds anything on it": func(n *harness.Node) strange {
		disk := mountAt(n, "disk", "tmpfs", "size=64M")
		critical := n.Start("critical", sandbox.Spec{Priority: podspec.SystemCriticalPriority, EmptyDirs: scratch})
		return strange{
			flags:    []string{sandbox.NodeFs(disk), sandbox.EvictionHard("nodefs.available<16Mi")},
			measured: "nodefs.available",
			press:    func() { critical.Send("write %s/much 52Mi", critical.Volume(disk, "scratch")) },
			culprit:  n.Start("empty", sandbox.Spec{}),
			spared:   []*harness.Pod{critical},
		}
	},
	"Docker with the cgroupfs driver": withoutPods("docker/"+container(1), "docker/"+container(2), "docker/"+container(1)[:12]),
	"Docker with the systemd driver":  withoutPods("system.slice/docker-"+container(3)+".scope", "system.slice/docker-"+container(4)+".scope", "docker/"+container(3)[:12]),
	"Podman":                          withoutPods("machine.slice/libpod-"+container(5)+".scope", "machine.slice/machine-libpod_pod_1.slice/libpod-"+container(6)+".scope", "podman/"+container(5)[:12]),
	"systemd-nspawn":                  withoutPods("machine.slice/systemd-nspawn@web.service", "machine.slice/machine-db.scope", "nspawn/web"),
	"systemd services, one of them listed": func(n *harness.Node) strange {
		s := withoutPods("system.slice/batch.service", "system.slice/web.service", "/system.slice/batch.service")(n)
		s.flags = append(s.flags, sandbox.Config(configFile(n.T, "outside: [system.slice/batch.service]")))
		s.spared[0].Do("hold 60Mi")
		return s
	},
}

// TestStrangeNodes builds each of them and runs evictd there.
//
// rule: M.180
// rule: M.182
// rule: M.183
// rule: M.184
// rule: M.185
// rule: M.186
// rule: M.187
// rule: M.188
// rule: M.189
// rule: M.193
func TestStrangeNodes(t *testing.T) {
	for name, build := range strangeNodes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs)
			s := build(n)
			d := n.Evictd(append(s.flags, longTransition)...)
			d.AwaitLog(s.says)
			for signal, why := range s.unmeasured {
				d.Await(signal+" to be unmeasured", func(st *nodestatus.Status) bool { return strings.Contains(signalOf(st, signal).Unmeasured, why) })
				if found, _, _ := evictctl(t, "doctor", "--status-address=unix:"+n.Socket()); !strings.Contains(found, "threshold of "+signal) || !strings.Contains(found, why) {
					t.Errorf("doctor does not say that %s is not measured, because %s:\n%s", signal, why, found)
				}
			}
			if s.appears != nil {
				s.appears()
			}
			if s.measured != "" {
				d.Await(s.measured+" to be measured", func(st *nodestatus.Status) bool {
					return signalOf(st, s.measured).Available != "" && signalOf(st, s.measured).Unmeasured == ""
				})
			}
			if s.press != nil {
				if s.evicted == "" {
					s.evicted = "default/" + s.culprit.Name
				}
				d.Await("evictd to measure "+s.evicted, func(st *nodestatus.Status) bool {
					return slices.ContainsFunc(st.Ranking[s.measured], func(r nodestatus.Ranked) bool { return r.Pod == s.evicted && r.Usage != "" })
				})
				s.press()
				evicted := d.Await("an eviction", func(st *nodestatus.Status) bool { return len(st.Evictions) > 0 }).Evictions[0].Pod
				if evicted != s.evicted {
					t.Errorf("%s was evicted, want %s", evicted, s.evicted)
				}
				harness.Await(t, "the end of "+s.evicted, func() bool { return !s.culprit.Runs() })
			}
			harness.MustRun(t, s.spared...)
		})
	}
}

// TestStrangeServicesThatStartAfterEvictdAreCandidates lists a service in outside that starts later: it does not wait for the
// housekeeping interval.
func TestStrangeServicesThatStartAfterEvictdAreCandidates(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	const service = "system.slice/batch.service"
	d := n.Evictd(sandbox.Config(configFile(t, "evictionHard: {memory.available: 80Mi}\noutside: ["+service+"]")), longTransition, sandbox.Housekeeping("1h"))
	d.AwaitLog("protecting the node")
	culprit := n.StartIn(n.Manifest("batch", sandbox.Spec{}), filepath.Join(n.Group, service), nil)
	d.Await("the service in the ranking", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Ranking[memorySignal], func(r nodestatus.Ranked) bool { return r.Pod == "/"+service })
	})
	culprit.Send("hold 200Mi")
	harness.Await(t, "the service to end", func() bool { return !culprit.Runs() })
}

// signalOf is what the status says of a signal.
func signalOf(s *nodestatus.Status, name string) (found nodestatus.SignalStatus) {
	for _, signal := range s.Signals {
		if signal.Name == name {
			found = signal
		}
	}
	return found
}

// leaks has a pod use up the memory of the node, beside another.
func (s strange) leaks(culprit, spared *harness.Pod) strange {
	spared.Do("hold 2Mi")
	if len(s.flags) == 0 {
		s.flags = []string{sandbox.EvictionHard("memory.available<80Mi")}
	}
	s.measured, s.culprit, s.spared = memorySignal, culprit, []*harness.Pod{spared}
	s.press = func() { culprit.Send("hold 200Mi") }
	return s
}

// fills has a pod use up a disk of 64 MiB, beside one that holds a little there.
func (s strange) fills(n *harness.Node, disk string) strange {
	s.flags = append([]string{sandbox.NodeFs(disk)}, s.flags...)
	s.measured = "nodefs.available"
	s.culprit = n.Start("filler", sandbox.Spec{Priority: 100, EmptyDirs: scratch})
	small := n.Start("small", sandbox.Spec{Priority: 100, EmptyDirs: scratch})
	s.spared = []*harness.Pod{small}
	s.press = func() {
		small.Do("write %s/few 2Mi", small.Volume(disk, "scratch"))
		s.culprit.Send("write %s/much 56Mi", s.culprit.Volume(disk, "scratch"))
	}
	return s
}

// withoutPods is a host without Kubernetes, where a culprit and another run in cgroups of a container engine or of systemd.
func withoutPods(culprit, other, name string) func(*harness.Node) strange {
	return func(n *harness.Node) strange {
		n.Delete(n.Pods().Path())
		start := func(name, group string) *harness.Pod {
			return n.StartIn(n.Manifest(name, sandbox.Spec{}), filepath.Join(n.Group, group), nil)
		}
		s := strange{
			flags:   []string{sandbox.PodManifests(""), sandbox.EvictionHard("memory.available<80Mi")},
			says:    "services of systemd are guarded only if the field outside lists them",
			evicted: name,
		}
		return s.leaks(start("culprit", culprit), start("other", other))
	}
}

// container is the id of a container.
func container(n int) string { return strings.Repeat("0123456789abcdef"[n:n+1], 64) }

// mountAt mounts a filesystem without a device in the node, and returns where.
func mountAt(n *harness.Node, name, kind, options string) string {
	n.T.Helper()
	at := filepath.Join(n.Dir, name)
	require.NoError(n.T, os.MkdirAll(at, 0o755))
	if err := unix.Mount(kind, at, kind, 0, options); err != nil {
		n.T.Skipf("skipped: %s cannot be mounted: %v", kind, err)
	}
	n.T.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}
