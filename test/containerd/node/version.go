package node

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Version is a containerd, and what belongs to it.
type Version struct {
	Name string // as in the name of a subtest

	find func(program string) (string, error)
}

// Debian is the containerd of Debian's packages, 1.6 in Debian 12.
var Debian = Version{"debian", func(program string) (string, error) {
	for _, dir := range []string{"/usr/bin", "/usr/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	debian := "containerd"
	if program == "runc" {
		debian = "runc"
	}
	return "", fmt.Errorf("there is no /usr/bin/%s: Debian's package %s has it", program, debian)
}}

// Built is the containerd of which test/containerd/parts/go.mod says the version.
var Built = Version{"built", Program}

// BesideKubelet is Built, with Debian's runc where the other is built without the seccomp
// that a kubelet asks for.
var BesideKubelet = Version{"beside-kubelet", func(program string) (string, error) {
	path, err := Program(program)
	if program != "runc" || err == nil && hasSeccomp(path) {
		return path, err
	}
	return Debian.find(program)
}}

// hasSeccomp says whether a runc is built with libseccomp.
func hasSeccomp(runc string) bool {
	out, err := exec.Command(runc, "--version").Output()
	return err == nil && strings.Contains(string(out), "libseccomp: ")
}

// Each runs a test for every version, one after the other.
func Each(t *testing.T, test func(t *testing.T, v Version)) {
	for _, v := range []Version{Debian, Built} {
		t.Run(v.Name, func(t *testing.T) { test(t, v) })
	}
}

// Program is the path of a program that `make containerd` builds. Where it has
// not the error says why.
func Program(name string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	reason, err := os.ReadFile(filepath.Join(root, "bin", "unavailable"))
	if err != nil || len(reason) == 0 {
		reason = []byte("`make containerd` builds it")
	}
	return "", fmt.Errorf("there is no test/containerd/bin/%s: %s", name, strings.TrimSpace(string(reason)))
}

// moduleRoot is the directory of this module, which the working directory is in.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "parts", "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the working directory is not in test/containerd")
		}
	}
	return "", err
}

// programs are the paths of what a running containerd needs.
type programs struct{ containerd, shim, runc, ctr string }

// programs are those of a version. The error names the first that is missing.
func (v Version) programs() (p programs, err error) {
	for _, of := range []struct {
		name string
		path *string
	}{{"containerd", &p.containerd}, {"containerd-shim-runc-v2", &p.shim}, {"runc", &p.runc}, {"ctr", &p.ctr}} {
		if *of.path, err = v.find(of.name); err != nil {
			return programs{}, err
		}
	}
	return p, nil
}
