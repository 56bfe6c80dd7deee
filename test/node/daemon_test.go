package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/runtest"
	"github.com/evictd/evictd/nodestatus"
)

// daemon is an `evictd run` of its own, or another program that serves.
type daemon struct {
	*runtest.Program
	t testing.TB
}

// socket is the node's status address.
func (n *node) socket() string { return filepath.Join(n.dir, "status.sock") }

func (n *node) runtime() string { return filepath.Join(n.dir, "run") }

// arguments of `evictd run` that make it quick to test; more of them win.
func (n *node) arguments(more ...string) []string {
	return append([]string{
		"run", "--node-name=node-1", "--cri-endpoint=none", "--nodefs=" + n.dir, "--state-dir=" + filepath.Join(n.dir, "state"),
		"--pod-manifests=" + n.manifests(), "--node-status-file=" + n.statusFile(), "--status-address=unix:" + n.socket(), "--runtime-dir=" + n.runtime(),
		"--housekeeping-interval=100ms", "--eviction-pressure-transition-period=1s",
	}, more...)
}

// run protects the node, measured by its cgroup, until the test ends.
func (n *node) run(args ...string) *daemon {
	n.t.Helper()
	return n.launch(exec.Command(program, n.arguments(append([]string{"--cgroup-root=" + n.group}, args...)...)...), nil)
}

// launch runs evictd as a user, nil for the test's own.
func (n *node) launch(process *exec.Cmd, as *syscall.Credential) *daemon {
	n.t.Helper()
	return n.launchAt(n.socket(), process, as)
}

// launchAt runs a program that serves on a socket.
func (n *node) launchAt(socket string, process *exec.Cmd, as *syscall.Credential) *daemon {
	n.t.Helper()
	process.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	return &daemon{runtest.Start(n.t, socket, process), n.t}
}

func (d *daemon) status() *nodestatus.Status {
	d.t.Helper()
	body, err := d.Get("/v1/status")
	var status nodestatus.Status
	if err = errors.Join(err, json.Unmarshal(body, &status)); err != nil {
		d.t.Fatalf("status: %v", err)
	}
	return &status
}

// await asks for the status until it is as described.
func (d *daemon) await(what string, holds func(*nodestatus.Status) bool) *nodestatus.Status {
	d.t.Helper()
	var status *nodestatus.Status
	await(d.t, what, func() bool {
		status = d.status()
		return holds(status)
	})
	return status
}

// awaitPods waits until the daemon has taken up and measured the pods.
func (d *daemon) awaitPods(signal string, pods ...*pod) {
	d.t.Helper()
	d.await("evictd to measure the pods", func(s *nodestatus.Status) bool {
		for _, p := range pods {
			at := slices.IndexFunc(s.Ranking[signal], func(r nodestatus.Ranked) bool { return r.UID == p.UID })
			if at < 0 || s.Ranking[signal][at].Usage == "" {
				return false
			}
		}
		return true
	})
}

// awaitEnd waits for the end of a pod's eviction, and of the pod.
func (d *daemon) awaitEnd(p *pod) nodestatus.Eviction {
	d.t.Helper()
	e := d.awaitEviction(p, func(e nodestatus.Eviction) bool { return !e.Gone.IsZero() })
	p.mustDie()
	return e
}

// awaitEviction waits until a pod is being evicted, and more.
func (d *daemon) awaitEviction(p *pod, holds func(nodestatus.Eviction) bool) nodestatus.Eviction {
	d.t.Helper()
	var found nodestatus.Eviction
	d.await("the eviction of "+p.Name, func(s *nodestatus.Status) bool {
		at := slices.IndexFunc(s.Evictions, func(e nodestatus.Eviction) bool { return e.UID == p.UID && holds(e) })
		if at >= 0 {
			found = s.Evictions[at]
		}
		return at >= 0
	})
	return found
}

func decided(nodestatus.Eviction) bool { return true }

// awaitCondition waits until a condition and its taint are reported, or are not.
func (d *daemon) awaitCondition(condition v1.NodeConditionType, taint string, raised bool) {
	d.t.Helper()
	want := map[bool]v1.ConditionStatus{true: v1.ConditionTrue, false: v1.ConditionFalse}[raised]
	d.await(string(condition)+" to be "+string(want), func(s *nodestatus.Status) bool {
		return slices.Contains(s.Taints, taint+":NoSchedule") == raised && slices.ContainsFunc(s.Conditions, func(c nodestatus.ConditionStatus) bool {
			return c.Type == condition && c.Status == want
		})
	})
}

// mustHaveEvicted fails the test unless exactly these pods were, in the order.
func (d *daemon) mustHaveEvicted(pods ...*pod) {
	d.t.Helper()
	var want, got []string
	for _, p := range pods {
		want = append(want, p.Namespace+"/"+p.Name)
	}
	for _, e := range d.status().Evictions {
		got = append(got, e.Pod)
	}
	if !slices.Equal(got, want) {
		d.t.Errorf("evicted %v, want %v", got, want)
	}
}

// mustCount fails the test unless the metrics have the line.
func (d *daemon) mustCount(line string) {
	d.t.Helper()
	metrics, err := d.Get("/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(metrics), "\n"), line) {
		d.t.Errorf("metrics lack %q", line)
	}
}

// awaitNodeFile waits until the node's manifest shows a condition and its taint
// as they are raised or not.
func (n *node) awaitNodeFile(condition v1.NodeConditionType, taint string, raised bool) {
	n.t.Helper()
	await(n.t, "the node status file to tell of "+string(condition), func() bool {
		text, err := os.ReadFile(n.statusFile())
		if err != nil {
			return false
		}
		var file v1.Node
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			n.t.Fatalf("node status file: %v\n%s", err, text)
		}
		tainted := slices.ContainsFunc(file.Spec.Taints, func(t v1.Taint) bool {
			return t.Key == taint && t.Effect == v1.TaintEffectNoSchedule
		})
		at := slices.IndexFunc(file.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == condition })
		return at >= 0 && (file.Status.Conditions[at].Status == v1.ConditionTrue) == raised && tainted == raised
	})
}

// finish runs a program that ends by itself.
func finish(t testing.TB, c *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	var ended *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}
