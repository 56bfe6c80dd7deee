// Package packages_test holds what `make release` leaves to what it is for: each package is of
// its architecture and has what a node runs, and all of it is the same when it is made again.
package packages_test

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/erofs/go-erofs"
	"github.com/sassoftware/go-rpmutils"
)

// architecture is one of a release.
type architecture struct {
	name, rpm, systemd string
	machine            elf.Machine
}

var architectures = []architecture{
	{"amd64", "x86_64", "x86-64", elf.EM_X86_64},
	{"arm64", "aarch64", "arm64", elf.EM_AARCH64},
}

// node are files of every package, of a node.
var node = []string{"usr/bin/evictd", "usr/bin/evictd-agent", "usr/lib/systemd/system/evictd.service", "usr/lib/sysusers.d/evictd.conf", "usr/lib/tmpfiles.d/evictd.conf"}

// more are files of a Debian package and of an RPM.
var more = append(slices.Clip(node), "usr/bin/evictd-scheduler", "usr/share/man/man5/evictd.yaml.5.gz", "etc/evictd/evictd.yaml")

// released makes a release.
func released(t *testing.T) (dir string) {
	t.Helper()
	if why, err := os.ReadFile("../../../test/deploy/bin/unavailable"); err == nil {
		t.Skipf("skipped: helm, which packs the chart, is not built: %s", bytes.TrimSpace(why))
	}
	dir = filepath.Join(t.TempDir(), "release")
	c := exec.CommandContext(t.Context(), "make", "--no-print-directory", "release", "RELEASE="+dir, "VERSION=v1.2.3")
	c.Dir = "../../.."
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return dir
}

// rule: S9.1
// rule: S9.15
// rule: S9.17
func TestAReleaseHasEveryPackageAndIsTheSameTwice(t *testing.T) {
	dir := released(t)
	sums := read(t, dir, "SHA256SUMS")
	checks(t, dir, sums)
	for _, want := range []string{"evictd-1.2.3.tgz", "image/evictd/index.json", "image/evictd-scheduler/index.json"} {
		if !strings.Contains(sums, "  "+want+"\n") {
			t.Errorf("the release has no %s: %s", want, sums)
		}
	}
	if changes := read(t, dir, "CHANGES"); !strings.HasPrefix(changes, "- ") {
		t.Errorf("the changes are %q", changes)
	}
	for _, arch := range architectures {
		t.Run(arch.name, func(t *testing.T) {
			arch.deb(t, filepath.Join(dir, "evictd_1.2.3_"+arch.name+".deb"))
			arch.rpmFile(t, filepath.Join(dir, "evictd-1.2.3-1."+arch.rpm+".rpm"))
			arch.sysext(t, filepath.Join(dir, "evictd_1.2.3_"+arch.name+".raw"))
			software(t, filepath.Join(dir, "evictd_1.2.3_"+arch.name+".spdx.json"))
		})
	}
	if again := read(t, released(t), "SHA256SUMS"); again != sums {
		t.Errorf("the same release twice: %s", differences(sums, again))
	}
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// differences are the lines that only one of two texts has.
func differences(a, b string) (lines []string) {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, line := range append(slices.Clone(x), y...) {
		if !slices.Contains(x, line) || !slices.Contains(y, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// checks fails if a file of a release has another sum, or none.
func checks(t *testing.T, dir, sums string) {
	t.Helper()
	for _, name := range paths(t, os.DirFS(dir)) {
		if want := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(read(t, dir, name))), name); name != "SHA256SUMS" && !strings.Contains(sums, want) {
			t.Errorf("SHA256SUMS has not %q", want)
		}
	}
}

// has fails if a tree has not all files, or a program of another architecture.
func (arch architecture) has(t *testing.T, name string, tree fs.FS, files []string) {
	t.Helper()
	found := paths(t, tree)
	for _, want := range files {
		if !slices.Contains(found, want) {
			t.Errorf("%s has no %s", name, want)
		}
	}
	for _, path := range found {
		if !strings.HasPrefix(path, "usr/bin/") {
			continue
		}
		content, err := fs.ReadFile(tree, path)
		if err != nil {
			t.Fatal(err)
		}
		program, err := elf.NewFile(bytes.NewReader(content))
		if err != nil || program.Machine != arch.machine {
			t.Errorf("%s: %s: %v; expected a program for %s", name, path, err, arch.name)
		}
		if info, err := fs.Stat(tree, path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %s: %v, %v; expected it to be executable", name, path, info.Mode(), err)
		}
	}
}

func (arch architecture) deb(t *testing.T, file string) {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("skipped: there is no dpkg-deb: Debian's package dpkg has it")
	}
	out, err := exec.Command("dpkg-deb", "--field", file, "Architecture").Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != arch.name {
		t.Errorf("%s is for %q, %v", file, got, err)
	}
	root := t.TempDir()
	if out, err := exec.Command("dpkg-deb", "--extract", file, root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	arch.has(t, file, os.DirFS(root), more)
}

func (arch architecture) rpmFile(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rpm, err := rpmutils.ReadRpm(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := rpm.Header.GetString(rpmutils.ARCH); err != nil || got != arch.rpm {
		t.Errorf("%s is for %q, %v", file, got, err)
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
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files { // the header has the modes with which rpm installs them
		if err := os.Chmod(filepath.Join(root, f.Name()), fs.FileMode(f.Mode()).Perm()); err != nil {
			t.Fatal(err)
		}
	}
	arch.has(t, file, os.DirFS(root), more)
}

func (arch architecture) sysext(t *testing.T, file string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	arch.has(t, file, image, append(slices.Clip(node), "usr/share/evictd/evictd.yaml"))
	release, err := fs.ReadFile(image, "usr/lib/extension-release.d/extension-release.evictd")
	if want := "ID=_any\nARCHITECTURE=" + arch.systemd + "\nEXTENSION_RELOAD_MANAGER=1\n"; err != nil || string(release) != want {
		t.Errorf("%s: %q, %v; expected %q", file, release, err, want)
	}
}

// software holds a list of software to the programs of a package.
func software(t *testing.T, file string) {
	t.Helper()
	var list struct {
		SPDXVersion string
		Packages    []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(read(t, file)), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range list.Packages {
		names = append(names, p.Name)
	}
	for _, want := range []string{"evictd", "evictd-agent", "evictd-apiserver", "evictd-scheduler", "stdlib", "k8s.io/client-go"} {
		if list.SPDXVersion != "SPDX-2.3" || !slices.Contains(names, want) {
			t.Errorf("%s, %s, has no %s", file, list.SPDXVersion, want)
		}
	}
}

// paths are the files of a tree.
func paths(t *testing.T, tree fs.FS) (all []string) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
