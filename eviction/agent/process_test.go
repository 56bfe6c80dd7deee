package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
)

// open opens an agent's program until the test ends.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	program, err := osprocess.OpenProgram(path)
	require.NoError(t, err)
	t.Cleanup(func() { program.Close() })
	return program
}

// unreachable is a copy of this test binary, of a mode, in a directory that only
// root may enter. The test is skipped unless it may start it as another user.
func unreachable(t *testing.T, mode os.FileMode) (program *os.File, user *User) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("skipped: starting the agent as another user needs root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "agent")
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, errors.Join(err, os.WriteFile(path, self, mode), os.Chmod(path, mode), os.Chmod(dir, 0o700)))
	const overflow = 65534
	return open(t, path), &User{Name: "nobody", UID: overflow, GID: overflow}
}

func TestAgentIsStartedAndRestartedThoughItsUserCannotReachItsPath(t *testing.T) {
	program, user := unreachable(t, 0o755)
	a := run(t, New(Config{Program: program, Arguments: []string{"good"}, User: user, Node: wire.Node{Name: "n", Publish: true}}, newKeeper(t, t.TempDir()), slog.New(slog.DiscardHandler)))
	for restarts, meanwhile := range []func() error{
		func() error { return nil },
		func() error { // an upgrade: another file at the path
			next := program.Name() + ".next"
			return errors.Join(os.WriteFile(next, []byte("#!/bin/false\n"), 0o755), os.Rename(next, program.Name()))
		},
		func() error { return os.Remove(program.Name()) },
		func() error { return nil },
	} {
		a.SetConditions(standing("stands"))
		await(t, "an agent that knows", func() bool { return a.API().Restarts == uint64(restarts) && a.API().Error == "stands" })
		require.NoError(t, meanwhile())
		a.Event(wire.Event{Reason: "end"})
	}
}

func TestProgramThatItsUserMayNotExecuteIsNamedWithTheWayOut(t *testing.T) {
	program, user := unreachable(t, 0o700)
	c := Config{Program: program, User: user}
	_, checked := c.Check()
	_, started := start(&c)
	for _, err := range []error{checked, started} {
		if err == nil || !strings.Contains(err.Error(), "chmod 755 "+program.Name()) || strings.Contains(err.Error(), "/proc/self/fd") {
			t.Errorf("unexpected fault %v", err)
		}
	}
}

func TestAgentJudgesItsFlagsAsTheUserThatItRunsAs(t *testing.T) {
	program, user := unreachable(t, 0o755)
	c := Config{Program: program, User: user}
	text, err := c.Check("--flag")
	if ended, ok := errors.AsType[*exec.ExitError](err); !ok || ended.ExitCode() != 2 {
		t.Errorf("it ended with %v", err)
	}
	if want := fmt.Sprintf("[%s check --flag] as user %d", program.Name(), user.UID); text != want {
		t.Errorf("it was %s, want %s", text, want)
	}
}

// check is the command check of the agent of runFake.
func check() {
	fmt.Fprintln(os.Stderr, os.Args, "as user", os.Geteuid())
	os.Exit(2)
}
