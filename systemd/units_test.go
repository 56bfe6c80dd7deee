// Package systemd_test holds the units against systemd's own checks.
package systemd_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// maxExposure is what `systemd-analyze security` may find of a service, of 10.
const maxExposure = 2.2

// shipped copies the units to a directory where the programs that they start are.
func shipped(t *testing.T) (dir string, units []string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("skipped: needs systemd-analyze, of Debian's package systemd:", err)
	}
	dir = t.TempDir()
	for _, pattern := range []string{"*.service", "*.socket", "*.slice"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		units = append(units, found...)
	}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err == nil {
			text = []byte(strings.ReplaceAll(string(text), "/usr/bin/", dir+"/"))
			err = os.WriteFile(filepath.Join(dir, unit), text, 0o644)
		}
		require.NoError(t, err)
	}
	for _, name := range []string{"evictd", "evictd-agent", "evictd-apiserver", "evictd-scheduler"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	return dir, units
}

func analyze(t *testing.T, dir string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	c := exec.Command("systemd-analyze", args...)
	c.Dir, c.Stdout, c.Stderr = dir, &out, &errs
	c.Env = append(os.Environ(), "SYSTEMD_LOG_COLOR=0", "SYSTEMD_PAGER=")
	if err := c.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return out.String(), errs.String()
}

// systemd-analyze verify exits with 0 even for a key that there is not.
func TestSystemdFindsNoFaultWithTheUnits(t *testing.T) {
	dir, units := shipped(t)
	args := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, unit := range units {
		args = append(args, "./"+unit)
	}
	if _, faults := analyze(t, dir, args...); faults != "" {
		t.Error(faults)
	}
}

func TestExposureOfTheServicesIsSmall(t *testing.T) {
	dir, units := shipped(t)
	overall := regexp.MustCompile(`Overall exposure level for .*: ([0-9.]+) `)
	for _, unit := range units {
		if !strings.HasSuffix(unit, ".service") {
			continue
		}
		out, errs := analyze(t, dir, "security", "--offline=yes", "--no-pager", "./"+unit)
		found := overall.FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("%s: %s%s", unit, out, errs)
		}
		exposure, err := strconv.ParseFloat(found[1], 64)
		require.NoError(t, err)
		t.Logf("exposure of %s: %.1f", unit, exposure)
		if exposure > maxExposure {
			t.Errorf("exposure of %s: %.1f is more than %.1f\n%s", unit, exposure, maxExposure, out)
		}
	}
}

// tool runs a program of systemd's below a root directory.
func tool(t *testing.T, root, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("skipped: needs", program+", of Debian's package systemd:", err)
	}
	if out, err := exec.Command(program, append([]string{"--root=" + root}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", program, err, out)
	}
}

func TestUsersAndDirectoriesOfTheUnitsAreMade(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to give directories to users")
	}
	root := t.TempDir()
	here, err := os.Getwd()
	if err == nil {
		err = os.Mkdir(filepath.Join(root, "etc"), 0o755)
	}
	require.NoError(t, err)
	tool(t, root, "systemd-sysusers", filepath.Join(here, "evictd.sysusers"))
	for _, file := range []string{"passwd", "group"} {
		text, err := os.ReadFile(filepath.Join(root, "etc", file))
		for _, name := range []string{"evictd:", "evictd-apiserver:"} {
			if err != nil || !strings.Contains("\n"+string(text), "\n"+name) {
				t.Errorf("%s has no %s %s %v", file, name, text, err)
			}
		}
	}
	for file, text := range map[string]string{"passwd": "root:x:0:0::/:/bin/sh\n", "group": "root:x:0:\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, "etc", file), []byte(text), 0o644))
	}
	if err := os.MkdirAll(filepath.Join(root, "var/log/pods"), 0o750); err != nil { // by a kubelet
		t.Fatal(err)
	}
	tool(t, root, "systemd-tmpfiles", "--create", filepath.Join(here, "evictd.tmpfiles"))
	for dir, mode := range map[string]os.FileMode{"run/evictd": 0o755, "var/lib/evictd": 0o755, "var/log/pods": 0o750, "var/log/containers": 0o755} {
		if info, err := os.Stat(filepath.Join(root, dir)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("/%s: %v, %v", dir, info, err)
		}
	}
}
