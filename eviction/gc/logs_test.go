package gc_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/require"
)

// tree makes files, and directories where a name ends in a slash, all of them
// too old to be of a pod that is about to start.
func tree(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if name[len(name)-1] == '/' {
			require.NoError(t, os.MkdirAll(path, 0o755))
		} else if err := os.WriteFile(path, []byte("a line\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, name))
}

// age makes all below a directory look an hour older than the simulated time.
func age(t *testing.T, dir string, now time.Time) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.Type() == os.ModeSymlink {
			return err
		}
		return os.Chtimes(path, now.Add(-time.Hour), now.Add(-time.Hour))
	})
	require.NoError(t, err)
}

// files lists all below a directory, links among them.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(dir, path)
			names = append(names, name)
		}
		return err
	})
	require.NoError(t, err)
	return names
}

// rule: 9.17
func TestLogsOfPodsThatAreGoneGoAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		name       string
		incomplete bool
		dryRun     bool
		reports    []string
		left       []string
	}{
		{
			"with the links that lead to them",
			false, false,
			[]string{"1m0s containers: expected 0, freed 0 GiB logs 2"},
			[]string{
				"links/elsewhere.log", "links/here.log", "links/no-link.log", "links/outside.log",
				"logs/default_gone-by-link_evil", "logs/default_here_here/c/0.log", "logs/default_known-to-the-runtime_running/c/0.log",
				"logs/default_young_young/c/0.log", "logs/of_no-pod/c/0.log", "precious/c/0.log",
			},
		},
		{"but not while a source of pods is missing, only the links that lead nowhere", true, false, []string{"1m0s containers: expected 0, freed 0 GiB logs 1"}, nil},
		{"nor in a dry run", false, true, []string{"1m0s containers: expected 0, freed 0 GiB would remove, logs 1"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			logs, links := filepath.Join(dir, "logs"), filepath.Join(dir, "links")
			tree(t, dir, "links/", "links/no-link.log", "precious/c/0.log",
				"logs/default_gone_gone/c/0.log", "logs/default_gone_gone/c/0.log.20260101", "logs/default_here_here/c/0.log",
				"logs/default_known-to-the-runtime_running/c/0.log", "logs/default_young_young/c/0.log", "logs/of_no-pod/c/0.log")
			link(t, filepath.Join(dir, "precious"), filepath.Join(logs, "default_gone-by-link_evil"))
			link(t, filepath.Join(dir, "precious"), filepath.Join(logs, "default_gone_gone", "out"))
			link(t, filepath.Join(logs, "default_here_here/c/0.log"), filepath.Join(links, "here.log"))
			link(t, filepath.Join(logs, "default_nowhere_nowhere/c/0.log"), filepath.Join(links, "nowhere.log"))
			link(t, filepath.Join(logs, "../missing"), filepath.Join(links, "outside.log"))
			link(t, filepath.Join(dir, "missing"), filepath.Join(links, "elsewhere.log"))
			before := files(t, dir)
			cfg := gc.Config{Periodic: gc.Periodic{Containers: true}, LogDir: logs, LinkDir: links, DryRun: c.dryRun}
			withCollector(t, setting{cfg: cfg, prepare: func(w *fixture) {
				age(t, dir, w.begun)
				young := filepath.Join(logs, "default_young_young")
				require.NoError(t, os.Chtimes(young, w.begun.Add(59*time.Second), w.begun.Add(59*time.Second)))
				w.incomplete = c.incomplete
				w.pods["here"] = reclaim.Pod{}
				w.inventory.Sandboxes = []inventory.Sandbox{{ID: "s", UID: "running", Ready: true}}
			}}, func(w *fixture) {
				w.at(time.Minute + time.Second)
				w.expect(c.reports...)
			})
			want := c.left
			if want == nil {
				want = before
				if c.incomplete {
					want = slices.DeleteFunc(want, func(name string) bool { return name == "links/nowhere.log" })
				}
			}
			if got := files(t, dir); !slices.Equal(got, want) {
				t.Errorf("left\n%q\nwant\n%q", got, want)
			}
		})
	}
}

// rule: 9.17
func TestAContainersLogsGoWithItAndNoLinkLeadsAstray(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	tree(t, dir, "precious/0.log", "logs/ns_p_p/c/0.log", "logs/ns_p_p/c/0.log.1.gz", "logs/ns_p_p/c/1.log", "logs/ns_p_p/other/0.log")
	link(t, filepath.Join(dir, "precious"), filepath.Join(logs, "ns_p_p", "linked"))
	link(t, "other", filepath.Join(logs, "ns_p_p", "linked-inside"))
	withCollector(t, setting{cfg: gc.Config{Periodic: gc.Periodic{Containers: true}, LogDir: logs}, prepare: func(w *fixture) {
		w.pods["p"] = reclaim.Pod{}
		w.container("newest", "p", time.Minute, 0).LogPath = filepath.Join(logs, "ns_p_p/c/1.log")
		w.container("plain", "p", time.Hour, 0).LogPath = filepath.Join(logs, "ns_p_p/c/0.log")
		w.container("by-link", "p", time.Hour, 0).LogPath = filepath.Join(logs, "ns_p_p/linked/0.log")
		w.container("by-inner-link", "p", time.Hour, 0).LogPath = filepath.Join(logs, "ns_p_p/linked-inside/0.log")
		w.container("upwards", "p", time.Hour, 0).LogPath = logs + "/../precious/0.log"
		w.container("without", "p", time.Hour, 0)
	}}, func(w *fixture) {
		plan := w.Preview()
		for _, r := range plan.Removals {
			want := int64(0)
			if r.ID == "plain" {
				want = 14
			}
			if got := r.Bytes.Or(0); got != want {
				t.Errorf("removing %s would free %d bytes, want %d", r.ID, got, want)
			}
		}
		w.at(2 * time.Minute)
		if len(plan.Removals) != 5 || len(w.inventory.Containers) != 1 {
			t.Errorf("%d were to go, %d are left", len(plan.Removals), len(w.inventory.Containers))
		}
	})
	want := []string{"logs/ns_p_p/c/1.log", "logs/ns_p_p/linked", "logs/ns_p_p/linked-inside", "logs/ns_p_p/other/0.log", "precious/0.log"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
}
