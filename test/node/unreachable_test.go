package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// overflow is the id of an unprivileged user and group.
const overflow = 65534

// ownersOnly is a directory with the programs that only its owner may enter. Its
// evictd-top makes the file shown.
func ownersOnly(t *testing.T, uid int) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent with another user than evictd's needs root")
	}
	dir = harness.Dir(t)
	for _, name := range []string{"evictd", "evictd-agent", "evictd-apiserver"} {
		if err := os.Link(harness.Program(t, name), filepath.Join(dir, name)); err != nil {
			t.Skip("skipped: the programs cannot be linked; TMPDIR on their filesystem lets them:", err)
		}
	}
	top := os.WriteFile(dir+"/evictd-top", []byte("#!/bin/sh\n>${0%/*}/shown\n"), 0o755)
	require.NoError(t, errors.Join(top, os.Chmod(dir, 0o700), os.Chown(dir, uid, uid)))
	return dir
}

// in is a command of a program in a directory, which is also that of its temporary
// files, as a user.
func in(ctx context.Context, dir string, uid uint32, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, filepath.Join(dir, name), args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "TMPDIR="+dir, "TERM=xterm")
	command.SysProcAttr = &syscall.SysProcAttr{}
	if uid != 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
	}
	return command
}

// protects is the command line of an evictd of a virtual node with the embedded API
// of a directory.
func protects(dir string) []string {
	return sandbox.Run(dir, sandbox.NodeMemory("256Mi"), sandbox.Mode("native"), sandbox.Server("unix:"+dir+"/api.sock"))
}

func TestProgramsWorkInADirectoryThatOnlyTheirUserMayEnter(t *testing.T) {
	t.Parallel()
	for user, uid := range map[string]uint32{"root": 0, "nobody": overflow} {
		t.Run(user, func(t *testing.T) {
			dir := ownersOnly(t, int(uid))
			harness.Serve(t, dir+"/api.sock", in(context.Background(), dir, uid, "evictd-apiserver", sandbox.APIServer(dir+"/api.sock", dir+"/api")...))
			e := harness.Evictd{Process: harness.Serve(t, sandbox.Socket(dir), in(context.Background(), dir, uid, "evictd", protects(dir)...))}
			connected := func(restarts uint64) {
				t.Helper()
				e.Await(fmt.Sprintf("an agent that is connected after %d restarts", restarts), func(s *nodestatus.Status) bool {
					return s.API != nil && s.API.Connected && s.API.Restarts == restarts
				})
			}
			connected(0)
			limit, cancel := context.WithTimeout(t.Context(), wait.Limit)
			defer cancel()
			// Its standard output is /dev/null, a character device as a terminal is.
			if err := in(limit, dir, uid, "evictd", "status", "--watch", sandbox.StatusAddress("unix:"+sandbox.Socket(dir))).Run(); err != nil {
				t.Error("show the live view:", err)
			}
			if _, err := os.Stat(dir + "/shown"); err != nil {
				t.Error("the live view was not executed:", err)
			}
			mustBeAgent(t, e.Agent(), dir, dir+"/evictd-agent")
			// An upgrade: another file is where the agent's was.
			require.NoError(t, errors.Join(os.WriteFile(dir+"/next", []byte("#!/bin/false\n"), 0o755), os.Rename(dir+"/next", dir+"/evictd-agent")))
			e.KillAgent()
			connected(1)
			mustBeAgent(t, e.Agent(), dir, dir+"/evictd-agent (deleted)")
		})
	}
}

// mustBeAgent checks what a process shows of its program.
func mustBeAgent(t *testing.T, pid int, dir, exe string) {
	t.Helper()
	at := fmt.Sprintf("/proc/%d/", pid)
	program, err1 := os.Readlink(at + "exe")
	comm, err2 := os.ReadFile(at + "comm")
	cmdline, err3 := os.ReadFile(at + "cmdline")
	status, err4 := os.ReadFile(at + "status")
	require.NoError(t, errors.Join(err1, err2, err3, err4))
	argv0, _, _ := strings.Cut(string(cmdline), "\x00")
	if program != exe || string(comm) != "evictd-agent\n" || argv0 != dir+"/evictd-agent" {
		t.Errorf("the agent is %s, %q, %s", program, comm, argv0)
	}
	if user := fmt.Sprintf("\nUid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", overflow); !strings.Contains(string(status), user) || !strings.Contains(string(status), "\nNoNewPrivs:\t1\n") {
		t.Errorf("the agent's rights are %s", status)
	}
}

func TestAnAgentThatItsUserMayNotExecuteKeepsEvictdFromStarting(t *testing.T) {
	t.Parallel()
	dir := ownersOnly(t, 0)
	agent := dir + "/evictd-agent"
	require.NoError(t, errors.Join(os.Remove(agent), os.WriteFile(agent, []byte("#!/bin/false\n"), 0o700)))
	limit, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	_, stderr, code := harness.Finish(t, in(limit, dir, 0, "evictd", protects(dir)...))
	if code != 1 || !strings.Contains(stderr, "chmod 755 "+agent) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestASocketThatTheAgentCannotReachKeepsEvictdFromStarting(t *testing.T) {
	t.Parallel()
	dir := ownersOnly(t, 0)
	without, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("skipped: setpriv, which takes a capability away, is missing; apt-get install util-linux")
	}
	limit, cancel := context.WithTimeout(t.Context(), wait.Limit)
	defer cancel()
	evictd := in(limit, dir, 0, "evictd", protects(dir)...)
	evictd.Args = append([]string{without, "--bounding-set=-dac_read_search", evictd.Path}, evictd.Args[1:]...)
	evictd.Path = without
	_, stderr, code := harness.Finish(t, evictd)
	if code != 2 || !strings.Contains(stderr, "--server unix:"+dir+"/api.sock: the agent's user (uid 65534) cannot reach it") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
