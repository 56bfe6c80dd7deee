package pods

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

func TestAFileInPlaceOfTheDirectoryIsATypedError(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "")
	path := filepath.Join(dir, "file")
	_, err := New(Config{Dir: path}, slog.New(slog.DiscardHandler))
	typed, ok := errors.AsType[*DirError](err)
	if !ok || typed.Dir != path || !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("got %v", err)
	}
	if want := "read pod manifests in " + path + ": "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s...", err, want)
	}
}

func TestADirectoryThatIsMissingAtTheStartIsReadWhenItAppears(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	var log logged
	m, err := New(Config{Dir: dir}, log.logger())
	require.NoError(t, err)
	if len(m.Pods()) > 0 || !m.lost {
		t.Errorf("pods %v, lost %v", names(m), m.lost)
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, dir, "pod.yaml", pod("a"))
	m.rescan()
	if names(m) != "default/a" || m.lost {
		t.Errorf("pods %v, lost %v", names(m), m.lost)
	}
}

func TestAPipeWithTheNameOfAManifestBlocksNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "pod.yaml", pod("a"))
	path := filepath.Join(dir, "pod.yaml")
	stamp, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	if _, now, err := contents(path, stamp); !errors.Is(err, errNotManifest) || now.Mode().IsRegular() {
		t.Errorf("got %v, %v", now, err)
	}
}

func TestAManifestWithoutEndIsNotRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "1.yaml", pod("a"))
	write(t, dir, "2.yaml", "")
	require.NoError(t, os.Truncate(filepath.Join(dir, "2.yaml"), 100<<20))
	var log logged
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m, err := New(Config{Dir: dir}, log.logger())
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; names(m) != "default/a" || took > 10*maxManifestBytes {
		t.Errorf("pods %s, %d bytes", names(m), took)
	}
	log.expect(t, `file=2.yaml document=0 error="not a pod manifest: larger than 1048576 bytes"`)
}

func TestOneFaultyFileLeavesTheOthersInPlace(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "1.yaml", pod("z")+"---\n"+pod("a"))
	write(t, dir, "2.json", jsonPod("b"))
	write(t, dir, "3.yml", pod("a")+"---\napiVersion: v1\nkind: Pod\nmetadata: {name: c, uid: default/b}\n")
	write(t, dir, "4.yaml", "kind: [")
	write(t, dir, "5.txt", pod("x"))
	write(t, dir, ".hidden.yaml", pod("x"))
	write(t, dir, "large.yaml", strings.Repeat("#", maxManifestBytes+1))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub.yaml"), 0o755))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")))
	require.NoError(t, os.Symlink("1.yaml", filepath.Join(dir, "loop.yaml")))

	var log logged
	m, err := New(Config{Dir: dir}, log.logger())
	require.NoError(t, err)
	if got := names(m); got != "default/a default/b default/z" {
		t.Errorf("pods %s", got)
	}
	log.expect(t,
		`file=3.yml document=1 error="pod default/a is already defined in 1.yaml, document 2"`,
		`file=3.yml document=2 error="uid default/b is already defined in 2.json, document 1"`,
		`file=4.yaml document=1 error="yaml:`,
		`file=5.txt document=0 error="not a pod manifest: the name`,
		`file=dangling.yaml document=0 error="stat`,
		`file=large.yaml document=0 error="not a pod manifest: larger`,
		`file=loop.yaml document=1 error="pod default/z is already defined in 1.yaml, document 1"`,
		`file=loop.yaml document=2 error="pod default/a is already defined in 1.yaml, document 2"`,
		`file=pipe.yaml document=0 error="not a pod manifest: not a regular file"`,
	)

	if changed, err := m.dir.scan(); changed || err != nil {
		t.Errorf("an unchanged directory: changed %v, %v", changed, err)
	}
}

func TestAFaultIsReportedOnceForEachContent(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", "kind: Job\n")
	var log logged
	m, err := New(Config{Dir: dir}, log.logger())
	require.NoError(t, err)
	rescan := func(name, text string) {
		write(t, dir, name, text)
		m.rescan()
		<-m.Changed()
	}
	rescan("b.yaml", pod("b"))
	log.expect(t, "file=a.yaml document=1")
	rescan("a.yaml", "kind: Job\n# still\n")
	log.expect(t, "file=a.yaml document=1", "file=a.yaml document=1")
	rescan("a.yaml", pod("a"))
	rescan("c.yaml", pod("c"))
	log.expect(t, "file=a.yaml document=1", "file=a.yaml document=1")
	if got := names(m); got != "default/a default/b default/c" {
		t.Errorf("pods %s", got)
	}
}

func TestTheDirectoryIsFollowed(t *testing.T) {
	dir := t.TempDir()
	m, _ := follow(t, Config{Dir: dir, RescanEvery: time.Hour})
	write(t, dir, "a.yaml", pod("a"))
	await(t, m, "default/a")
	write(t, dir, ".a.yaml", pod("b"))
	require.NoError(t, os.Rename(filepath.Join(dir, ".a.yaml"), filepath.Join(dir, "a.yaml")))
	await(t, m, "default/b")
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	await(t, m, "")
}

func TestFilesLinkedAsAConfigMapMountsThemAreFollowed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, ".."+name), 0o755))
		write(t, dir, ".."+name+"/pod.yaml", pod(name))
	}
	require.NoError(t, os.Symlink("..a", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/pod.yaml", filepath.Join(dir, "pod.yaml")))
	m, _ := follow(t, Config{Dir: dir, RescanEvery: time.Hour})
	await(t, m, "default/a")
	require.NoError(t, os.Symlink("..b", filepath.Join(dir, "..next")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..next"), filepath.Join(dir, "..data")))
	await(t, m, "default/b")
}

func TestWhatInotifyDoesNotReportIsFoundByRescanning(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "a.yaml", pod("a"))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "a.yaml"), filepath.Join(dir, "a.yaml")))
	m, _ := follow(t, Config{Dir: dir, RescanEvery: 10 * time.Millisecond})
	await(t, m, "default/a")
	write(t, elsewhere, "a.yaml", pod("longer"))
	await(t, m, "default/longer")
}

func TestAVanishedDirectoryKeepsItsPodsAndIsFollowedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, dir, "a.yaml", pod("a"))
	m, log := follow(t, Config{Dir: dir, RescanEvery: 10 * time.Millisecond})
	require.NoError(t, os.RemoveAll(dir))
	log.await(t, "keeping the last known pods")
	if got := names(m); got != "" && got != "default/a" { // RemoveAll takes the file first
		t.Errorf("pods %s", got)
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	write(t, dir, "b.yaml", pod("b"))
	await(t, m, "default/b")
	log.await(t, "pod manifests are back")
	if n := strings.Count(log.String(), "keeping the last known pods"); n != 1 {
		t.Errorf("said %d times that the directory is gone:\n%s", n, log.String())
	}
}

// follow runs Manifests until the test ends.
func follow(t *testing.T, cfg Config) (*Manifests, *logged) {
	t.Helper()
	log := &logged{}
	m, err := New(cfg, log.logger())
	require.NoError(t, err)
	require.Running(t, m.Run)
	return m, log
}

// await waits until the set is that of the names.
func await(t *testing.T, m *Manifests, want string) {
	t.Helper()
	for enough := time.After(wait.Limit); names(m) != want; {
		select {
		case <-m.Changed():
		case <-enough:
			t.Fatalf("pods %q, want %q", names(m), want)
		}
	}
}

func names(m *Manifests) string {
	var names []string
	for _, pod := range m.Pods() {
		names = append(names, fullName(pod))
	}
	return strings.Join(names, " ")
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// logged collects log lines.
type logged struct{ wait.Log }

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// expect wants one line for each part, in order.
func (l *logged) expect(t *testing.T, parts ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	if len(lines) != len(parts) {
		t.Errorf("logged %d lines, want %d:\n%s", len(lines), len(parts), l.String())
		return
	}
	for i, line := range lines {
		if !strings.Contains(line, parts[i]) {
			t.Errorf("got  %s\nwant %s", line, parts[i])
		}
	}
}

func (l *logged) await(t *testing.T, part string) {
	t.Helper()
	wait.Until(t, "the log to say "+part, func() bool { return strings.Contains(l.String(), part) })
}

func pod(name string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n"
}

func jsonPod(name string) string {
	return `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "` + name + `"}}`
}
