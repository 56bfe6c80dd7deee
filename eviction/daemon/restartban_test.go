package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cgroup/cgrouptest"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/require"
)

// banned is a pod in a cgroup of its own.
type banned struct {
	t       *testing.T
	cgroups *cgroup.System
	group   string
	file    string // of the setting
}

func newBanned(t *testing.T) *banned {
	cgroups, group := cgrouptest.New(t, cgroup.Limits{})
	setting, ok := cgroups.NoStartsSetting(group)
	if !ok {
		t.Skip("skipped: needs cgroup v2 or the pids controller")
	}
	return &banned{t, cgroups, group, setting.File}
}

func (b *banned) ban(dir string, log *bytes.Buffer) *restartBan {
	b.t.Helper()
	ban, err := newRestartBan(b.cgroups, dir, slog.New(slog.NewTextHandler(log, nil)))
	require.NoError(b.t, err)
	return ban
}

// mustBe fails the test where the kernel does not refuse the start of a container in the cgroup, or does.
func (b *banned) mustBe(is bool) {
	b.t.Helper()
	want := "max"
	if is {
		want = "0"
	}
	if text, err := os.ReadFile(b.file); err != nil || strings.TrimSpace(string(text)) != want {
		b.t.Errorf("%s is %q, %v, want %s", b.file, text, err, want)
	}
	start := `mkdir c && rmdir c`
	if b.cgroups.Version() == cgroup.V1 {
		start = `echo $$ >cgroup.procs && sh -c : ; :`
	}
	started := exec.Command("sh", "-c", start)
	started.Dir = filepath.Dir(b.file)
	if out, err := started.CombinedOutput(); is != (err != nil) {
		b.t.Errorf("a start: %v %s", err, out)
	}
}

// rule: M.120
func TestNothingIsStartedInAnEndedPodUntilTheKubeletKnows(t *testing.T) {
	pod := newBanned(t)
	var log bytes.Buffer
	b := pod.ban(t.TempDir(), &log)
	const uid types.UID = "a"
	begins := func(want bool) {
		t.Helper()
		if begun := b.begin(uid, pod.group); begun != want {
			t.Errorf("begun: %t", begun)
		}
	}
	begins(true)
	begins(false)
	now := time.Now()
	b.follow(now.Add(-2*learning), nil, 1) // the end of the kill is not kept yet
	pod.mustBe(true)
	b.follow(now, []types.UID{uid, "b"}, 2)
	pod.mustBe(true)
	b.follow(now, []types.UID{"b"}, 1)
	pod.mustBe(true)
	b.follow(now.Add(learning+1), []types.UID{"b"}, 1)
	pod.mustBe(false)
	begins(true)
	b.end()
	pod.mustBe(false)
	begins(true)
	require.NoError(t, b.close([]types.UID{uid}))
	pod.mustBe(false)
	if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the log is left: %v", err)
	}
	if b.begin("gone", pod.group+"/gone"); log.Len() > 0 {
		t.Errorf("logged %s", &log)
	}
}

// leave leaves a copy of the only undo log of a directory, as a process that was killed does.
func leave(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "undo-*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %q, %v", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "undo-killed"), text, 0o600))
}

// rule: M.120
func TestABanOutlivesAKilledEvictdUntilNothingIsUnreported(t *testing.T) {
	pod := newBanned(t)
	dir := filepath.Join(t.TempDir(), "bans")
	var log bytes.Buffer
	killed := pod.ban(dir, &log)
	const uid types.UID = "a"
	killed.begin(uid, pod.group)
	leave(t, dir)
	if _, err := undo.Defer(dir); err != nil { // evictd undo of its service
		t.Fatal(err)
	}
	b := pod.ban(dir, &log)
	now := time.Now()
	b.follow(now, nil, 1) // its kill is resumed
	b.begin(uid, pod.group)
	b.follow(now, []types.UID{uid}, 1)
	pod.mustBe(true)
	b.follow(now, nil, 0)
	pod.mustBe(true)
	b.follow(now.Add(learning+1), nil, 0)
	pod.mustBe(false)
	require.NoError(t, b.close(nil))
	require.NoError(t, killed.changes.Close())
}

// rule: M.120
func TestABanOfAReportedEvictionOutlivesTheStopOfEvictd(t *testing.T) {
	pod := newBanned(t)
	runtimeDir := t.TempDir()
	var log bytes.Buffer
	stopped := pod.ban(restartBanDir(runtimeDir), &log)
	stopped.begin("a", pod.group)
	require.NoError(t, stopped.close([]types.UID{"b"}))
	for range 2 { // each stop of its service runs it
		if undone, err := RecoverAfter(runtimeDir, "success"); err != nil || len(undone) > 0 {
			t.Errorf("put back %q, %v", undone, err)
		}
	}
	pod.mustBe(true)
	next := pod.ban(restartBanDir(runtimeDir), &log)
	now := time.Now()
	next.follow(now, nil, 0)
	pod.mustBe(true)
	next.follow(now.Add(learning+1), nil, 0)
	pod.mustBe(false)
	require.NoError(t, next.close(nil))

	stopped = pod.ban(restartBanDir(runtimeDir), &log)
	stopped.begin("a", pod.group)
	require.NoError(t, stopped.close(nil))
	if undone, err := RecoverAfter(runtimeDir, ""); err != nil || len(undone) != 1 { // by hand
		t.Errorf("put back %q, %v", undone, err)
	}
	pod.mustBe(false)
}
