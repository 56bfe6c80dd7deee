package runc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
)

// host runs containers with the runc that is installed, in a cgroup of their own.
type host struct {
	t       *testing.T
	root    string // of the states
	cgroups *cgroup.System
	group   string
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to run containers")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("skipped: needs Debian's package runc:", err)
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip("skipped: needs a mounted cgroup hierarchy:", err)
	}
	h := &host{t: t, root: t.TempDir(), cgroups: cgroups, group: fmt.Sprintf("/evictd-runc-test-%d", os.Getpid())}
	if err := cgroups.Create(h.group, cgroup.Limits{}); err != nil {
		t.Skip("skipped: needs a cgroup hierarchy that may be written to:", err)
	}
	t.Cleanup(func() {
		if err := cgroups.Delete(h.group); err != nil {
			t.Error(err)
		}
		others, err := filepath.Glob("/sys/fs/cgroup/*" + h.group) // those that runc alone uses, of v1
		require.NoError(t, err)
		for _, group := range others {
			require.NoError(t, os.Remove(group))
		}
	})
	return h
}

const mib = 1 << 20

// run starts a container of a shell that runs the lines passed to the returned function.
func (h *host) run(id string, annotations map[string]string) (do func(string)) {
	h.t.Helper()
	bundle := h.t.TempDir()
	var mounts []map[string]any
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr"} {
		if _, err := os.Stat(dir); err == nil {
			mounts = append(mounts, map[string]any{"destination": dir, "source": dir, "type": "bind", "options": []string{"rbind", "ro"}})
		}
	}
	mounts = append(mounts, map[string]any{"destination": "/proc", "source": "proc", "type": "proc"}, map[string]any{"destination": "/dev", "source": "tmpfs", "type": "tmpfs"})
	spec := map[string]any{
		"ociVersion": "1.0.2", "root": map[string]any{"path": "rootfs"}, "hostname": "c", "mounts": mounts, "annotations": annotations,
		"process": map[string]any{"args": []string{"/bin/sh"}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0}, "env": []string{"PATH=/bin:/usr/bin"}},
		"linux": map[string]any{
			"cgroupsPath": h.group + "/" + id,
			"namespaces":  []map[string]any{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}},
			"resources":   map[string]any{"memory": map[string]any{"limit": 32 * mib, "reservation": 16 * mib}, "cpu": map[string]any{"quota": 50000, "period": 100000}},
		},
	}
	text, err := json.Marshal(spec)
	require.NoError(h.t, err)
	require.NoError(h.t, os.Mkdir(bundle+"/rootfs", 0o755))
	require.NoError(h.t, os.WriteFile(bundle+"/config.json", text, 0o644))
	in, out, err := os.Pipe()
	require.NoError(h.t, err)
	var output bytes.Buffer
	c := exec.Command("runc", "--root", h.root, "run", "--bundle", bundle, id)
	c.Stdin, c.Stdout, c.Stderr = in, &output, &output
	require.NoError(h.t, c.Start())
	in.Close()
	h.t.Cleanup(func() {
		out.Close() // the shell ends, and runc after it
		if err := c.Wait(); err != nil && strings.Contains(output.String(), "level=error") {
			h.t.Log(output.String())
		}
		_ = exec.Command("runc", "--root", h.root, "delete", "--force", id).Run()
	})
	return func(order string) {
		if _, err := fmt.Fprintln(out, order); err != nil {
			h.t.Fatal(err)
		}
	}
}

// find looks until the containers of the host are those, in their order.
func (h *host) find(c *Containers, ids ...string) (found []inventory.RuncContainer) {
	h.t.Helper()
	wait.Until(h.t, fmt.Sprintf("the containers %v", ids), func() bool {
		found = c.look()
		return slices.EqualFunc(found, ids, func(c inventory.RuncContainer, id string) bool { return c.ID == id })
	})
	return found
}

func TestContainersOfRuncAreFound(t *testing.T) {
	h := newHost(t)
	containers := New([]string{filepath.Dir(h.root) + "/*"}, nil, slog.New(slog.DiscardHandler))
	h.find(containers)
	do := h.run("alone", nil)
	h.run("of-a-pod", map[string]string{
		"io.kubernetes.cri.sandbox-id": "s1", "io.kubernetes.cri.sandbox-uid": "u1", "io.kubernetes.cri.sandbox-namespace": "shop",
		"io.kubernetes.cri.sandbox-name": "cart", "io.kubernetes.cri.container-name": "app",
	})
	found := h.find(containers, "alone", "of-a-pod")
	if c := found[0]; c.MemoryLimit != 32*mib || c.MemoryReservation != 16*mib || c.CPUQuota != 50000 || c.CPUPeriod != 100000 ||
		c.Cgroup != h.cgroups.Mount("memory")+h.group+"/alone" || c.Sandbox != "" {
		t.Errorf("got %+v", c)
	}
	if c := found[1]; c.Sandbox != "s1" || c.UID != "u1" || c.Namespace != "shop" || c.Name != "cart" || c.Container != "app" {
		t.Errorf("got %+v", c)
	}
	do("exit")
	h.find(containers, "of-a-pod")
}

func TestAStateThatMakesNoSenseIsLoggedOnce(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+"/broken", 0o755))
	require.NoError(t, os.WriteFile(root+"/broken/state.json", []byte("{"), 0o644))
	var log bytes.Buffer
	c := New([]string{root}, nil, slog.New(slog.NewTextHandler(&log, nil)))
	for range 3 {
		if found := c.look(); len(found) > 0 {
			t.Errorf("got %v", found)
		}
	}
	if logged := strings.Count(log.String(), "cannot be used"); logged != 1 {
		t.Errorf("logged %d times:\n%s", logged, &log)
	}
}

func TestContainersThatStayTheSameAreReportedBeforeSilenceCountsAsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		last, longest := time.Now(), time.Duration(0)
		said := 0
		New([]string{t.TempDir()}, func(wire.FromAgent) {
			longest, last = max(longest, time.Since(last)), time.Now()
			said++
		}, slog.New(slog.DiscardHandler)).Run(ctx)
		if longest > wire.AgentTimeout/2 || said > int(time.Hour/(wire.AgentTimeout/3)) {
			t.Errorf("%d reports in an hour, %v apart at most; silence is %v", said, longest, wire.AgentTimeout)
		}
	})
}
