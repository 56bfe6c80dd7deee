// Package packages_test holds the RPM of `make rpm` to the files and scripts that the Debian
// package has.
package packages_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sassoftware/go-rpmutils"
)

// rule: S9.15
func TestAnRPMHasWhatThePackageInstalls(t *testing.T) {
	found, err := filepath.Glob("../../../bin/evictd-*.rpm")
	if err != nil || len(found) == 0 {
		t.Skip("skipped: there is no bin/evictd-*.rpm: make rpm builds it")
	}
	for _, file := range found {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rpm, err := rpmutils.ReadRpm(f)
		if err != nil {
			t.Fatal(err)
		}
		for tag, want := range map[int]string{rpmutils.POSTIN: "systemctl start", rpmutils.PREUN: "systemctl stop", rpmutils.POSTUN: "daemon-reload"} {
			script, err := rpm.Header.GetString(tag)
			if err != nil || !strings.Contains(script, want) {
				t.Errorf("%s: script %d is %q, %v; expected it to have %q", file, tag, script, err, want)
			}
			c := exec.Command("sh", "-n")
			c.Stdin = strings.NewReader(script)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: script %d: %s", file, tag, out)
			}
		}
		root := t.TempDir()
		if err := rpm.ExpandPayload(root); err != nil {
			t.Fatal(err)
		}
		files := paths(t, root)
		for _, want := range []string{
			"usr/bin/evictd", "usr/bin/evictd-agent", "usr/bin/evictd-scheduler", "usr/lib/systemd/system/evictd.service",
			"usr/lib/sysusers.d/evictd.conf", "usr/lib/tmpfiles.d/evictd.conf", "usr/share/man/man5/evictd.yaml.5.gz", "etc/evictd/evictd.yaml",
		} {
			if !slices.Contains(files, want) {
				t.Errorf("%s has no %s", file, want)
			}
		}
	}
}

func paths(t *testing.T, root string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(root, path)
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
