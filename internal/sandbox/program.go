// Package sandbox makes small nodes out of parts of this host, for tests, benchmarks and
// demonstrations: a node is a bounded cgroup, a pod is a process in a cgroup below it,
// where the kubelet would place it. It builds evictd's programs and has their command
// lines. It asserts nothing.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ProgramsVariable names a directory that has evictd's programs already. Unless it is
// set they are built.
const ProgramsVariable = "EVICTD_PROGRAMS"

// Build builds some of evictd's programs from the source tree that the working
// directory is in, static unless under the race detector.
func Build(dir string, names ...string) error {
	root, err := SourceRoot()
	if err != nil {
		return err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", dir+"/")
	if raceDetector {
		build.Args = append(build.Args, "-race")
	} else {
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	for _, name := range names {
		build.Args = append(build.Args, "./cmd/"+name)
	}
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(names, ", "), err, out)
	}
	return nil
}

// SourceRoot is the top of the source tree that the working directory is in.
func SourceRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if text, _ := os.ReadFile(filepath.Join(dir, "go.mod")); strings.HasPrefix(string(text), "module github.com/evictd/evictd\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not in the source tree of evictd")
		}
	}
	return "", err
}
