// Package node_test drives the built evictd against real pods: processes of
// this test binary in bounded cgroups of the test's own, one of which is taken
// for the node. Nothing outside those groups comes under pressure.
package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/evictd/evictd/test/vm/machine"
)

// program is the evictd that TestMain built, and podProgram this test binary
// where every user can start it.
var program, podProgram string

// sibling is another program that TestMain built.
func sibling(name string) string { return filepath.Join(filepath.Dir(program), name) }

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		playPod()
	}
	os.Exit(buildAndRun(m))
}

// buildAndRun builds the programs where every user can start it, with the race
// detector where the tests have it. A machine of its own has them installed.
func buildAndRun(m *testing.M) int {
	if machine.Own {
		program, podProgram = "/usr/bin/evictd", os.Args[0]
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "evictd-node-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program, podProgram = filepath.Join(dir, "evictd"), filepath.Join(dir, "pod")
	build := exec.Command("go", "build", "-o", dir+"/")
	if raceDetector {
		build.Args = append(build.Args, "-race")
	}
	for _, name := range []string{"evictd", "evictd-agent", "evictd-apiserver", "evictd-scheduler"} {
		build.Args = append(build.Args, "github.com/evictd/evictd/cmd/"+name)
	}
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the programs: %v\n%s", err, out)
		return 1
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.WriteFile(podProgram, self, 0o755), os.Chmod(dir, 0o755)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait for something that is to come, emulated processors
// among those that wait. Nothing is asserted of how fast it comes.
var patience = map[bool]time.Duration{false: 30 * time.Second, true: 4 * time.Minute}[machine.Own]

// await asks until the condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	awaitFor(t, patience, what, holds)
}

func awaitFor(t testing.TB, patience time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		<-tick.C
	}
}

// evictctl runs an evictd that ends by itself.
func evictctl(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return finish(t, exec.CommandContext(ctx, program, args...))
}
