package install

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// host is a root directory with what every host has.
func host(t *testing.T) *Files {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"etc", "opt"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, dir), 0o755))
	}
	return NewFiles(root)
}

// all are the paths and contents below a directory.
func all(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		text := ""
		if err == nil && d.Type().IsRegular() {
			content, _ := os.ReadFile(path)
			text = "=" + string(content)
		}
		found = append(found, strings.TrimPrefix(path, root)+text)
		return err
	}))
	return found
}

func file(path, content string) File { return File{Path: path, Mode: 0o644, Content: []byte(content)} }

func write(t *testing.T, h *Files, version string, files ...File) Change {
	t.Helper()
	change, err := h.Write(version, files)
	require.NoError(t, err)
	return change
}

// rule: S9.2
func TestOnlyWhatDiffersIsWritten(t *testing.T) {
	h := host(t)
	a, b := file("/opt/evictd/bin/a", "1"), file("/etc/evictd/b", "1")
	if got := write(t, h, "v1", a, b); !slices.Equal(got.Changed, []string{"/etc/evictd/b", "/opt/evictd/bin/a"}) || got.Unfinished {
		t.Errorf("the first time: %+v", got)
	}
	require.NoError(t, h.Finish())
	before, err := os.Stat(h.at(a.Path))
	require.NoError(t, err)
	b.Content = []byte("2")
	if got := write(t, h, "v1", a, b); !slices.Equal(got.Changed, []string{"/etc/evictd/b"}) {
		t.Errorf("another content: %+v", got)
	}
	require.NoError(t, h.Finish())
	if got := write(t, h, "v1", a, b); len(got.Changed) > 0 || got.Unfinished {
		t.Errorf("the same again: %+v", got)
	}
	after, err := os.Stat(h.at(a.Path))
	require.NoError(t, err)
	if !os.SameFile(before, after) {
		t.Error("a file with the same content was replaced")
	}
	// A file that was changed on the host comes back.
	require.NoError(t, os.WriteFile(h.at(a.Path), []byte("edited"), 0o644))
	if got := write(t, h, "v1", a, b); !slices.Equal(got.Changed, []string{a.Path}) {
		t.Errorf("an edited file: %+v", got)
	}
	// A file that the next version has not is removed.
	if got := write(t, h, "v2", b); !slices.Equal(got.Changed, []string{a.Path}) {
		t.Errorf("one file less: %+v", got)
	}
	if _, err := os.Stat(h.at(a.Path)); err == nil {
		t.Error("a file of the version before is still there")
	}
}

// rule: S9.3
func TestRemoveLeavesTheHostAsItWas(t *testing.T) {
	h := host(t)
	require.NoError(t, os.WriteFile(h.at("/etc/hosts"), []byte("localhost"), 0o644))
	before := all(t, h.Root)
	write(t, h, "v1", file("/opt/evictd/bin/a", "1"), file("/etc/systemd/system/evictd.service.d/b", "1"))
	write(t, h, "v2", file("/usr/local/evictd/bin/a", "1"))
	require.NoError(t, os.MkdirAll(h.at("/var/lib/evictd/journal"), 0o755))
	require.NoError(t, os.MkdirAll(h.at("/etc/evictd/pods"), 0o755))
	require.NoError(t, h.Remove("/var/lib/evictd"))
	after := all(t, h.Root)
	// Of others: their directory in /etc/evictd, and /var, which no Write has made.
	want := append(slices.Clone(before), "/etc/evictd", "/etc/evictd/pods", "/var", "/var/lib")
	slices.Sort(want)
	slices.Sort(after)
	if !slices.Equal(after, want) {
		t.Errorf("the host has\n%s\nexpected\n%s", strings.Join(after, "\n"), strings.Join(want, "\n"))
	}
}

// rule: S9.4
func TestAFileOfTheHostIsNeitherOverwrittenNorRemoved(t *testing.T) {
	h := host(t)
	require.NoError(t, os.MkdirAll(h.at("/etc/evictd"), 0o755))
	require.NoError(t, os.WriteFile(h.at("/etc/evictd/evictd.yaml"), []byte("mine"), 0o644))
	before := all(t, h.Root)
	_, err := h.Write("v1", []File{file("/opt/evictd/bin/a", "1"), file("/etc/evictd/evictd.yaml", "theirs")})
	if err == nil || !strings.Contains(err.Error(), "/etc/evictd/evictd.yaml is on the host already") {
		t.Errorf("error %v", err)
	}
	require.NoError(t, h.Remove())
	if after := all(t, h.Root); !slices.Equal(before, after) {
		t.Errorf("the host has %q; expected %q", after, before)
	}
}

// rule: S9.5
func TestAChangeThatWasInterruptedIsCarriedOn(t *testing.T) {
	h := host(t)
	missing := File{Path: "/opt/evictd/bin/b", Mode: 0o755, Source: h.at("/etc/nothing")}
	require.NoError(t, os.WriteFile(missing.Source, []byte("2"), 0o644))
	before := all(t, h.Root)
	if _, err := h.Write("v1", []File{file("/opt/evictd/bin/a", "1"), file("/etc/nothing/evictd", "2")}); err == nil {
		t.Fatal("a file was written below another file")
	}
	if after := all(t, h.Root); !slices.Equal(before, after) {
		t.Errorf("of a first time that failed %q is left; expected %q", after, before)
	}
	write(t, h, "v1", file("/opt/evictd/bin/a", "1"), missing)
	if got := write(t, NewFiles(h.Root), "v1", file("/opt/evictd/bin/a", "1"), missing); !got.Unfinished || len(got.Changed) > 0 {
		t.Errorf("after an end before Finish: %+v", got)
	}
	// The next version ends between two files. What is recorded covers those that are there.
	if _, err := h.Write("v2", []File{file("/opt/evictd/bin/new", "2"), file("/etc/nothing/evictd", "2")}); err == nil {
		t.Fatal("a file was written below another file")
	}
	if _, err := os.Stat(h.at("/opt/evictd/bin/new")); err != nil {
		t.Fatal("the change did not begin:", err)
	}
	require.NoError(t, h.Remove())
	require.NoError(t, os.Remove(missing.Source))
	if left := all(t, h.Root); len(left) != 3 {
		t.Errorf("%q is left", left)
	}
}
