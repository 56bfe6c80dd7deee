package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/runtest"
	"github.com/evictd/evictd/nodestatus"
)

// runc has runc run a shell in a cgroup of the pods', which may have so many MiB of
// memory and holds some when it is told to.
func (n *node) runc(id string, limit, hold int) (begin func()) {
	n.t.Helper()
	// A block of dd is memory of its own for as long as it waits for its input.
	script := fmt.Sprintf("read x; (head -c %dM /dev/zero; sleep 600) | dd of=/dev/null bs=%dM iflag=fullblock", hold, 2*hold)
	bundle := filepath.Join(n.dir, id)
	mounts := []map[string]any{{"destination": "/proc", "source": "proc", "type": "proc"}}
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr", "/dev"} {
		if _, err := os.Stat(dir); err == nil {
			mounts = append(mounts, map[string]any{"destination": dir, "source": dir, "type": "bind", "options": []string{"rbind", "ro"}})
		}
	}
	text, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2", "root": map[string]any{"path": "rootfs"}, "mounts": mounts,
		"process": map[string]any{"args": []string{"/bin/sh", "-c", script}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}, "env": []string{"PATH=/bin:/usr/bin"}},
		"linux": map[string]any{
			"cgroupsPath": filepath.Join(n.group, podsCgroup, id),
			"namespaces":  []map[string]any{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}},
			"resources":   map[string]any{"memory": map[string]any{"limit": limit * mib, "reservation": 16 * mib}},
		},
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.MkdirAll(bundle+"/rootfs", 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(bundle+"/config.json", text, 0o644); err != nil {
		n.t.Fatal(err)
	}
	run := exec.Command("runc", "--root", n.runcState(), "run", "--bundle", bundle, id)
	var told runtest.Log
	run.Stdout, run.Stderr = &told, &told
	orders, err := run.StdinPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	run.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := run.Start(); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		_ = exec.Command("runc", "--root", n.runcState(), "kill", id, "KILL").Run()
		_ = run.Wait() // with the status of a container that was killed
		_ = exec.Command("runc", "--root", n.runcState(), "delete", "--force", id).Run()
		if n.t.Failed() {
			n.t.Log(told.String())
		}
	})
	return func() {
		if _, err := fmt.Fprintln(orders, "begin"); err != nil {
			n.t.Fatal(err)
		}
	}
}

func (n *node) runcState() string { return filepath.Join(n.dir, "runc") }

func TestContainerThatOnlyRuncKnowsIsEvictedLikeAPod(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc to run containers:", err)
	}
	n := newNode(t, nodeMemory, nodePIDs)
	small := n.start("small", podSpec{request: "64Mi"})
	d := n.run("--runc-state="+n.runcState(), "--eviction-hard=memory.available<96Mi")
	modest, hog := n.runc("modest", 400, 16), n.runc("hog", 400, 190)
	for _, name := range []string{"runc/modest", "runc/hog"} {
		d.await("pod "+name, func(s *nodestatus.Status) bool {
			return slices.ContainsFunc(s.Ranking["memory.available"], func(r nodestatus.Ranked) bool { return r.Pod == name })
		})
	}
	modest()
	hog()
	d.await("the end of the hog", func(s *nodestatus.Status) bool {
		for _, e := range s.Evictions {
			if e.Pod == "runc/hog" && e.Estimated && strings.HasPrefix(e.Message, "The node was low on resource: memory. ") {
				return true
			}
		}
		return false
	})
	mustLive(t, small)
	for _, e := range d.status().Evictions {
		if e.Pod != "runc/hog" {
			t.Errorf("%s is evicted, too", e.Pod)
		}
	}
}

func TestContainerOfRuncThatReachesItsOwnLimitIsTold(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc to run containers:", err)
	}
	n := newNode(t, nodeMemory, nodePIDs)
	d := n.run("--runc-state="+n.runcState(), "--eviction-hard=memory.available<16Mi")
	begin := n.runc("bounded", 32, 64)
	d.await("the container", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Ranking["memory.available"], func(r nodestatus.Ranked) bool { return r.Pod == "runc/bounded" })
	})
	begin()
	if k := d.awaitKernelKill(); k.Pod != "runc/bounded" || k.Limit != "pod" {
		t.Errorf("the status tells of %+v", k)
	}
	if evictions := d.status().Evictions; len(evictions) > 0 {
		t.Errorf("evictions %+v", evictions)
	}
}
