package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/stats"
)

// nobody owns nothing.
const nobody = 65534

// built is the directory of all programs.
var built string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if built, err = os.MkdirTemp("", "pg-"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(built)
		build := exec.Command("go", "build", "-buildvcs=false", "-o", built, ".", "../evictd", "../evictd-agent", "../evictd-apiserver", "../evictd-scheduler")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("build: %v\n%s", err, out))
		}
		return m.Run()
	}())
}

var programNames = []string{"evictd-playground", "evictd", "evictd-agent", "evictd-apiserver", "evictd-scheduler"}

// programs links all programs into a directory that only its owner may enter, beside
// an empty one for temporary files.
func programs(t *testing.T, asNobody bool) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg-") // short: a socket's path has 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, name := range programNames {
		if err := os.Link(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "tmp")
	if err := errors.Join(os.Mkdir(tmp, 0o700), os.Chmod(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	if asNobody && os.Geteuid() == 0 {
		if err := errors.Join(os.Chown(tmp, nobody, nobody), os.Chown(dir, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// started is a playground that runs.
type started struct {
	*exec.Cmd
	dir    string
	stdout *bufio.Reader
	errs   bytes.Buffer
	told   strings.Builder
}

func play(t *testing.T, asNobody bool, args ...string) *started {
	t.Helper()
	return playIn(t, programs(t, asNobody), asNobody, args...)
}

// playIn plays with the programs of a directory.
func playIn(t *testing.T, dir string, asNobody bool, args ...string) *started {
	t.Helper()
	s := &started{dir: dir}
	s.Cmd = exec.Command(filepath.Join(s.dir, "evictd-playground"), args...)
	s.Env = append(os.Environ(), "TMPDIR="+filepath.Join(s.dir, "tmp"))
	s.Dir = s.dir
	s.Stderr = &s.errs
	if asNobody && os.Geteuid() == 0 {
		s.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.stdout = bufio.NewReader(out)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// until reads on until a line holds the text.
func (s *started) until(t *testing.T, text string) {
	t.Helper()
	for {
		line, err := s.stdout.ReadString('\n')
		s.told.WriteString(line)
		if err != nil {
			t.Fatalf("it never said %q: %s%s", text, &s.told, &s.errs)
		}
		if strings.Contains(line, text) {
			return
		}
	}
}

// end waits for the end, and for an exit code.
func (s *started) end(t *testing.T, code int) {
	t.Helper()
	if _, err := io.Copy(&s.told, s.stdout); err != nil {
		t.Error(err)
	}
	_ = s.Wait() // its code is looked at
	if s.ProcessState.ExitCode() != code {
		t.Errorf("it ended with %v, want exit code %d:\n%s%s", s.ProcessState, code, &s.told, &s.errs)
	}
}

func (s *started) says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.told.String()+s.errs.String(), text) {
			t.Errorf("it did not say %q:\n%s%s", text, &s.told, &s.errs)
		}
	}
}

// leavesNothing looks for files, processes and cgroups.
func (s *started) leavesNothing(t *testing.T) {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(files) > 0 {
		t.Errorf("files are left: %v %v", files, err)
	}
	if left := s.children(t); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	name := "evictd-playground-" + strconv.Itoa(s.Process.Pid)
	for _, pattern := range []string{"/sys/fs/cgroup/" + name, "/sys/fs/cgroup/*/" + name} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("cgroups are left: %v", left)
		}
	}
}

// children are the processes that run one of the programs.
func (s *started) children(t *testing.T) (left []string) {
	t.Helper()
	programs, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range programs {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, s.dir) {
			left = append(left, link)
		}
	}
	return left
}

// needCgroups skips where no cgroup can be made.
func needCgroups(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making cgroups needs root")
	}
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Skip(err)
	}
	probe := "/evictd-playground-test-" + strconv.Itoa(os.Getpid())
	err = cgroups.Create(probe+"/below", cgroup.Limits{Memory: stats.Known(16 * console.MiB), PIDs: stats.Known(16)})
	if deleted := cgroups.Delete(probe); deleted != nil {
		t.Error(deleted)
	}
	if err != nil {
		t.Skip(err)
	}
}

func TestTheWholeLoopIsClosedInASmallCluster(t *testing.T) {
	needCgroups(t)
	s := playIn(t, programs(t, true), false) // root in a user's directory, as sudo is
	s.end(t, 0)
	s.says(t, "cgroup /evictd-playground-", "placed 8 pods", "MemoryPressure=True in the API", "is Failed/Evicted in the API",
		"is created in its place", "shop/newcomer has to wait", "untolerated taint", "shop/tolerant goes to", "has to go (PreemptionByScheduler)",
		"finished what it was doing", "MemoryPressure=False", "shop/newcomer runs", "yes  the replacement runs on another node",
		"yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestReplacementsComeBackInAStormUnlessNodePressureIsOn(t *testing.T) {
	needCgroups(t)
	s := play(t, false, "--storm")
	s.end(t, 0)
	s.says(t, "yes  without NodePressure replacements came back, to be evicted again", "yes  with it each worker was evicted once, and no replacement came back",
		"yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestAClusterThatIsKeptAnswersKubectlUntilItIsInterrupted(t *testing.T) {
	needCgroups(t)
	s := play(t, false, "--keep")
	s.until(t, "kubectl --server http://127.0.0.1:")
	pages := regexp.MustCompile(`(http://[0-9.:]+)  (node-[abc]|the scheduler)`).FindAllStringSubmatch(s.told.String(), -1)
	if len(pages) != 8 {
		t.Errorf("it tells of status pages %q, want 4 at the start and 4 now", pages)
	}
	for _, found := range pages {
		response, err := http.Get(found[1])
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(response.Body)
		response.Body.Close()
		if want := "<title>evictd" + map[bool]string{true: "-scheduler"}[found[2] == "the scheduler"] + "</title>"; err != nil || !bytes.Contains(page, []byte(want)) {
			t.Errorf("%s is no page of %s: %v\n%s", found[1], found[2], err, page)
		}
	}
	server := regexp.MustCompile(`--server (http://[0-9.:]+)`).FindStringSubmatch(s.told.String())[1]
	response, err := http.Get(server + "/api/v1/nodes")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var nodes v1.NodeList
	if err := json.NewDecoder(response.Body).Decode(&nodes); err != nil || len(nodes.Items) != 3 {
		t.Errorf("it has nodes %+v, %v", nodes.Items, err)
	}
	if err := s.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	s.end(t, 0)
	s.says(t, "yes  every program stopped in order", "yes  nothing is left behind")
	s.leavesNothing(t)
}

func TestWithoutPrivilegesASingleNodeIsMeasuredThroughProcfs(t *testing.T) {
	t.Parallel()
	s := play(t, true)
	s.end(t, 0)
	s.says(t, "no cgroups can be made here (not root)", "shop/crawler is first", "MemoryPressure=True", "evicted    shop/worker",
		"its request, shop/crawler", "shop/database uses most", "MemoryPressure=False", "yes  no other pod ended")
	s.leavesNothing(t)
}

// TestATerminalShowsHowFarItIs plays on a terminal of script(1).
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
			s := play(t, false, c.args...)
			s.until(t, c.text)
			if err := s.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
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
			if err := errors.Join(os.Remove(broken), os.WriteFile(broken, []byte("#!/bin/sh\necho no luck today >&2\nexit 3\n"), 0o755)); err != nil {
				t.Fatal(err)
			}
			s := playIn(t, dir, false)
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
	if err := errors.Join(os.Remove(agent), os.WriteFile(agent, []byte("#!/bin/false\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	s := playIn(t, dir, false)
	s.end(t, exitFault)
	s.says(t, "evictd-playground: evictd of node-", "chmod 755 "+agent)
	s.leavesNothing(t)
}

func TestAMissingProgramOrABadFlagIsNamed(t *testing.T) {
	t.Parallel()
	s := play(t, false, "--programs", "/nonexistent")
	s.end(t, exitFault)
	s.says(t, "/nonexistent/evictd")
	s = play(t, false, "--evict")
	s.end(t, exitBadInput)
	s.says(t, "--evict")
	s = play(t, false, "--storm", "--keep")
	s.end(t, exitBadInput)
	s.says(t, "--storm: goes with neither")
}

func TestAKilledPlaygroundTakesItsChildrenAlong(t *testing.T) {
	for name, args := range map[string][]string{"of a cluster": nil, "of a virtual node": {"--procfs"}} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				needCgroups(t)
			}
			s := play(t, false, args...)
			s.until(t, "leak  ")
			if err := s.Process.Kill(); err != nil {
				t.Fatal(err)
			}
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
	s := play(t, false, "node", "trial")
	s.until(t, "^C ends the pods")
	s.says(t, "512Mi of memory", "shop/database  Guaranteed  220Mi    160Mi", "evictd run --config trial/evictd.yaml")
	program := filepath.Join(s.dir, "evictd-playground")
	tell := func(args ...string) (string, error) {
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
	if err != nil {
		t.Fatal(err)
	}
	if out, err := tell("leak", "trial", "worker"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wait.Until(t, "the worker to leak", func() bool {
		now, err := resident(worker)
		return err == nil && now > before+console.MiB
	})
	if err := syscall.Kill(worker, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.until(t, "ended      shop/worker: signal: terminated")
	if out, err := tell("leak", "trial", "worker"); err == nil || !strings.Contains(out, "does not run") {
		t.Errorf("told to leak after its end: %v: %s", err, out)
	}
	if out, err := tell("leak", "trial", "nobody"); err == nil || !strings.Contains(out, "evictd-playground node trial makes it") {
		t.Errorf("told a pod that there is not: %v: %s", err, out)
	}
	if err := s.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	s.end(t, 0)
	s.leavesNothing(t)
}

// workerOf is the process of the pod of a manifest.
func workerOf(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`playground/process: "(\d+)"`).FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("no process in %s", text)
	}
	pid, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// removeCgroups removes those of a playground that could not.
func (s *started) removeCgroups(t *testing.T) {
	t.Helper()
	cgroups, err := cgroup.Discover("")
	if err != nil {
		t.Fatal(err)
	}
	// A process leaves its cgroup after its memory.
	wait.Until(t, "the cgroups to be without processes", func() bool {
		return cgroups.Delete("/evictd-playground-"+strconv.Itoa(s.Process.Pid)) == nil
	})
}

func TestALeakEndsByItselfAtItsCap(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(built, "evictd-playground"), "pod", "--hold", "4Mi", "--leak", "100Mi", "--cap", "8Mi")
	commands, err1 := cmd.StdinPipe()
	replies, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	_, err1 = commands.Write([]byte{'\n'})
	_, err2 = io.ReadFull(replies, make([]byte, 1))
	held, err3 := resident(cmd.Process.Pid)
	if err := errors.Join(err1, err2, err3, cmd.Process.Signal(syscall.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	taken := int64(0)
	look := func() {
		now, err := resident(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		taken = max(taken, now-held)
	}
	wait.Until(t, "the leak", func() bool {
		look()
		return taken >= 7*console.MiB
	})
	// As long again as the whole leak takes at least, in which it takes no more.
	again := time.After(80 * time.Millisecond)
	for over := false; !over; look() {
		select {
		case <-again:
			over = true
		case <-time.After(time.Millisecond):
		}
	}
	commands.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if taken < 7*console.MiB || taken > 10*console.MiB {
		t.Errorf("it took %s, want 8Mi", console.Size(taken))
	}
}

// resident is what a process has for itself, bytes (proc_pid_statm(5), pages).
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, resident, shared int64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil {
		return 0, err
	}
	return (resident - shared) * int64(os.Getpagesize()), nil
}

func TestATerminatedPodFinishesWhatItDoes(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(filepath.Join(built, "evictd-playground"), "pod", "--farewell", "50ms")
	commands, err1 := cmd.StdinPipe()
	replies, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	defer commands.Close()
	_, err1 = commands.Write([]byte{'\n'})
	_, err2 = io.ReadFull(replies, make([]byte, 1))
	if err := errors.Join(err1, err2, cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
		t.Error(err)
	}
}
