package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func TestTheWholeLoopIsClosedInASmallCluster(t *testing.T) {
	needCgroups(t)
	s := startIn(t, programs(t, true), false) // root in a user's directory, as sudo is
	s.end(t, 0)
	s.says(t, "cgroup /evictd-playground-", "placed 8 pods", "MemoryPressure=True in the API", "is Failed/Evicted in the API",
		"is created in its place", "shop/newcomer has to wait", "untolerated taint", "shop/tolerant goes to", "has to go (PreemptionByScheduler)",
		"finished what it was doing", "MemoryPressure=False", "shop/newcomer runs", "yes  the replacement runs on another node",
		"yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestReplacementsComeBackInAStormUnlessNodePressureIsOn(t *testing.T) {
	needCgroups(t)
	s := start(t, false, "--storm")
	s.end(t, 0)
	s.says(t, "yes  without NodePressure replacements came back, to be evicted again", "yes  with it each worker was evicted once, and no replacement came back",
		"yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestAClusterThatIsKeptAnswersKubectlUntilItIsInterrupted(t *testing.T) {
	needCgroups(t)
	s := start(t, false, "--keep")
	s.until(t, "kubectl --server http://127.0.0.1:")
	pages := regexp.MustCompile(`(http://[0-9.:]+)  (node-[abc]|the scheduler)`).FindAllStringSubmatch(s.out.String(), -1)
	if len(pages) != 8 {
		t.Errorf("it prints status pages %q, want 4 at the start and 4 now", pages)
	}
	for _, found := range pages {
		response, err := http.Get(found[1])
		require.NoError(t, err)
		page, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := "<title>evictd" + map[bool]string{true: "-scheduler"}[found[2] == "the scheduler"] + "</title>"; err != nil || !bytes.Contains(page, []byte(want)) {
			t.Errorf("%s is no page of %s: %v\n%s", found[1], found[2], err, page)
		}
	}
	server := regexp.MustCompile(`--server (http://[0-9.:]+)`).FindStringSubmatch(s.out.String())[1]
	response, err := http.Get(server + "/api/v1/nodes")
	require.NoError(t, err)
	defer response.Body.Close()
	var nodes v1.NodeList
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil || len(nodes.Items) != 3 {
		t.Errorf("it has nodes %+v, %v", nodes.Items, err)
	}
	require.NoError(t, s.Process.Signal(os.Interrupt))
	s.end(t, 0)
	s.says(t, "yes  every program stopped in order", "yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestWithoutPrivilegesASingleNodeIsMeasuredThroughProcfs(t *testing.T) {
	t.Parallel()
	s := start(t, true)
	s.end(t, 0)
	s.says(t, "no cgroups can be made here (not root)", "shop/crawler is first", "MemoryPressure=True", "evicted shop/worker",
		"its request, shop/crawler", "shop/database uses most", "MemoryPressure=False", "yes  no other pod ended")
	s.leavesNothing(t)
}

// TestATerminalShowsHowFarItIs runs the playground on a terminal of script(1).
func TestATerminalShowsHowFarItIs(t *testing.T) {
	t.Parallel()
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("script is not installed: it is the terminal of this test")
	}
	colour := regexp.MustCompile(`\x1b\[[0-9]+m`)
	for noColour, coloured := range map[string]bool{"": true, "1": false} {
		t.Run("NO_COLOR="+noColour, func(t *testing.T) {
			t.Parallel()
			dir := programs(t, false)
			cmd := exec.Command(script, "-qec", filepath.Join(dir, "evictd-playground")+" --procfs", "/dev/null")
			cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Join(dir, "tmp"), "TERM=xterm", "NO_COLOR="+noColour)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%v: %s", err, out)
			}
			for _, want := range []string{"0/4 the node starts", "2/4 it is evicted", "3/4 the node recovers\r\x1b[K"} {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not show %q: %q", want, out)
				}
			}
			if colour.Match(out) != coloured {
				t.Errorf("colours: %t, want %t: %q", !coloured, coloured, out)
			}
		})
	}
}

func TestAnInterruptedPlaygroundSaysSoAndCleansUp(t *testing.T) {
	needCgroups(t)
	for moment, c := range map[string]struct {
		text   string
		signal os.Signal
		args   []string
	}{
		"while the cluster comes up":  {"api  ", syscall.SIGTERM, nil},
		"while a pod leaks":           {"leak  ", os.Interrupt, nil},
		"while the virtual node does": {"leak  ", syscall.SIGTERM, []string{"--procfs"}},
		"in a storm":                  {"evicted; of", os.Interrupt, []string{"--storm"}},
	} {
		t.Run(moment, func(t *testing.T) {
			s := start(t, false, c.args...)
			s.until(t, c.text)
			require.NoError(t, s.Process.Signal(c.signal))
			s.end(t, exitInterrupted)
			s.says(t, "interrupted: cleaning up")
			s.leavesNothing(t)
		})
	}
}

func TestAProgramThatDoesNotStartIsShownWithItsLog(t *testing.T) {
	needCgroups(t)
	for _, name := range []string{"evictd", "evictd-apiserver", "evictd-scheduler"} {
		t.Run(name, func(t *testing.T) {
			dir := programs(t, false)
			broken := filepath.Join(dir, name)
			require.NoError(t, errors.Join(os.Remove(broken), os.WriteFile(broken, []byte("#!/bin/sh\necho no luck today >&2\nexit 3\n"), 0o755)))
			s := startIn(t, dir, false)
			s.end(t, exitFault)
			s.says(t, name, ": exit status 3", "no luck today")
			s.leavesNothing(t)
		})
	}
}

func TestAnAgentThatItsUserMayNotExecuteEndsThePlaygroundWithTheWayOut(t *testing.T) {
	needCgroups(t)
	dir := programs(t, false)
	agent := filepath.Join(dir, "evictd-agent")
	require.NoError(t, errors.Join(os.Remove(agent), os.WriteFile(agent, []byte("#!/bin/false\n"), 0o700)))
	s := startIn(t, dir, false)
	s.end(t, exitFault)
	s.says(t, "evictd-playground: evictd of node-", "chmod 755 "+agent)
	s.leavesNothing(t)
}

func TestAMissingProgramOrABadFlagIsNamed(t *testing.T) {
	t.Parallel()
	s := start(t, false, "--programs", "/nonexistent")
	s.end(t, exitFault)
	s.says(t, "/nonexistent/evictd")
	s = start(t, false, "--evict")
	s.end(t, exitBadInput)
	s.says(t, "--evict")
	s = start(t, false, "--storm", "--keep")
	s.end(t, exitBadInput)
	s.says(t, "--storm: goes with neither")
}

func TestAKilledPlaygroundTakesItsChildrenAlong(t *testing.T) {
	for name, args := range map[string][]string{"of a cluster": nil, "of a virtual node": {"--procfs"}} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				needCgroups(t)
			}
			s := start(t, false, args...)
			s.until(t, "leak  ")
			require.NoError(t, s.Process.Kill())
			s.end(t, -1)
			wait.Until(t, "the end of its children", func() bool { return len(s.children(t)) == 0 })
			if args == nil {
				s.removeCgroups(t)
			}
		})
	}
}

func TestANodeToTryEvictdOnLeaksOnASignal(t *testing.T) {
	needCgroups(t)
	s := start(t, false, "node", "trial")
	s.until(t, "^C ends the pods")
	s.says(t, "512Mi of memory", "shop/database  Guaranteed  220Mi    160Mi", "evictd run --config trial/evictd.yaml")
	program := filepath.Join(s.dir, "evictd-playground")
	run := func(args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Dir = s.dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	check := exec.Command(filepath.Join(s.dir, "evictd"), "check-config", filepath.Join("trial", "evictd.yaml"))
	check.Dir = s.dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("its configuration is refused: %v: %s", err, out)
	}
	worker := workerOf(t, filepath.Join(s.dir, "trial", "pods", "worker.yaml"))
	before, err := resident(worker)
	require.NoError(t, err)
	if out, err := run("leak", "trial", "worker"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait.Until(t, "the worker to leak", func() bool {
		now, err := resident(worker)
		return err == nil && now > before+console.MiB
	})
	require.NoError(t, syscall.Kill(worker, syscall.SIGTERM))
	s.until(t, "ended      shop/worker: signal: terminated")
	if out, err := run("leak", "trial", "worker"); err == nil || !strings.Contains(out, "does not run") {
		t.Errorf("leak after the end of the pod: %v: %s", err, out)
	}
	if out, err := run("leak", "trial", "absent"); err == nil || !strings.Contains(out, "evictd-playground node trial makes it") {
		t.Errorf("leak of a pod that does not exist: %v: %s", err, out)
	}
	require.NoError(t, s.Process.Signal(os.Interrupt))
	s.end(t, 0)
	s.leavesNothing(t)
}

// workerOf is the process of the pod of a manifest.
func workerOf(t *testing.T, file string) int {
	t.Helper()
	text := require.ReadFile(t, file)
	found := regexp.MustCompile(`playground/process: "(\d+)"`).FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("no process in %s", text)
	}
	pid, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return pid
}
