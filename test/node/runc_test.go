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

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// runc has runc run a shell in a cgroup of the pods', which may have so many MiB of
// memory and holds some after begin is called.
func runc(n *harness.Node, id string, limit, hold int) (begin func()) {
	n.T.Helper()
	// A block of dd is memory of its own for as long as it waits for its input.
	script := fmt.Sprintf("read x; (head -c %dM /dev/zero; sleep 600) | dd of=/dev/null bs=%dM iflag=fullblock", hold, 2*hold)
	bundle := filepath.Join(n.Dir, id)
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
			"cgroupsPath": filepath.Join(n.Pods().Path(), id),
			"namespaces":  []map[string]any{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}},
			"resources":   map[string]any{"memory": map[string]any{"limit": limit * harness.MiB, "reservation": 16 * harness.MiB}},
		},
	})
	require.NoError(n.T, err)
	require.NoError(n.T, os.MkdirAll(bundle+"/rootfs", 0o755))
	require.NoError(n.T, os.WriteFile(bundle+"/config.json", text, 0o644))
	run := exec.Command("runc", "--root", runcState(n), "run", "--bundle", bundle, id)
	var output wait.Log
	run.Stdout, run.Stderr = &output, &output
	orders, err := run.StdinPipe()
	require.NoError(n.T, err)
	run.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	require.NoError(n.T, run.Start())
	n.T.Cleanup(func() {
		_ = exec.Command("runc", "--root", runcState(n), "kill", id, "KILL").Run()
		_ = run.Wait() // with the status of a container that was killed
		_ = exec.Command("runc", "--root", runcState(n), "delete", "--force", id).Run()
		if n.T.Failed() {
			n.T.Log(output.String())
		}
	})
	return func() {
		if _, err := fmt.Fprintln(orders, "begin"); err != nil {
			n.T.Fatal(err)
		}
	}
}

func runcState(n *harness.Node) string { return filepath.Join(n.Dir, "runc") }

func TestContainerThatOnlyRuncKnowsIsEvictedLikeAPod(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc to run containers:", err)
	}
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	small := n.Start("small", sandbox.Spec{Request: "64Mi"})
	d := n.Evictd(sandbox.RuncState(runcState(n)), sandbox.EvictionHard("memory.available<96Mi"))
	modest, hog := runc(n, "modest", 400, 16), runc(n, "hog", 400, 190)
	for _, name := range []string{"runc/modest", "runc/hog"} {
		d.Await("pod "+name, func(s *nodestatus.Status) bool {
			return slices.ContainsFunc(s.Ranking["memory.available"], func(r nodestatus.Ranked) bool { return r.Pod == name })
		})
	}
	modest()
	hog()
	d.Await("the end of the hog", func(s *nodestatus.Status) bool {
		for _, e := range s.Evictions {
			if e.Pod == "runc/hog" && e.Estimated && strings.HasPrefix(e.Message, "The node was low on resource: memory. ") {
				return true
			}
		}
		return false
	})
	harness.MustRun(t, small)
	for _, e := range d.Status().Evictions {
		if e.Pod != "runc/hog" {
			t.Errorf("%s is evicted, too", e.Pod)
		}
	}
}

func TestContainerOfRuncThatReachesItsOwnLimitIsReported(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: no runc to run containers:", err)
	}
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	d := n.Evictd(sandbox.RuncState(runcState(n)), sandbox.EvictionHard("memory.available<16Mi"))
	begin := runc(n, "bounded", 32, 64)
	d.Await("the container", func(s *nodestatus.Status) bool {
		return slices.ContainsFunc(s.Ranking["memory.available"], func(r nodestatus.Ranked) bool { return r.Pod == "runc/bounded" })
	})
	begin()
	if k := awaitKernelKill(d); k.Pod != "runc/bounded" || k.Limit != "pod" {
		t.Errorf("the status has %+v", k)
	}
	if evictions := d.Status().Evictions; len(evictions) > 0 {
		t.Errorf("evictions %+v", evictions)
	}
}
