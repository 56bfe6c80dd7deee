package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// TestKillWhileAManifestIsReplaced ends a store at three moments of the write of a manifest whose object has changed
// again, and edits or removes the manifest that is there then.
func TestKillWhileAManifestIsReplaced(t *testing.T) {
	const beforeRename, afterRename, atEnd = "before the rename", "after the rename", "at the end"
	for _, first := range []bool{false, true} { // there was none before
		for _, killed := range []string{beforeRename, afterRename, atEnd} {
			for _, then := range []string{"left", "edited", "removed"} {
				if first && (killed == beforeRename && then != "left" || killed == afterRename && then == "removed") {
					continue // there is none; it is as if it had not been renamed
				}
				t.Run(fmt.Sprintf("the first: %v, killed %s, %s", first, killed, then), func(t *testing.T) {
					dir, a := t.TempDir(), Key{Name: "a"}
					s := open(t, dir)
					nodes := s.Table("nodes")
					if !first {
						set(t, nodes, "a", "x1")
						written(t, s)
					}
					set(t, nodes, "a", "x2")
					whole, next := draft(t, s, nodes.Get(a))
					set(t, nodes, "a", "x3")
					func() {
						defer func() { _ = recover() }()
						require.NoError(t, nodes.swap(a, false, next, func(path string, old identity) error {
							if killed == beforeRename {
								panic(killed)
							}
							require.NoError(t, exchange(whole, path, old, next.identity))
							if killed == afterRename {
								panic(killed)
							}
							return nil
						}))
					}()
					kill(t, s)
					want := "x3"
					switch then {
					case "edited":
						want = "by-hand"
						text := string(require.ReadFile(t, manifestOf(dir, "a")))
						require.NoError(t, os.WriteFile(manifestOf(dir, "a"), []byte(regexp.MustCompile("v: x[12]").ReplaceAllString(text, "v: by-hand")), 0o640))
					case "removed":
						want = ""
						require.NoError(t, os.Remove(manifestOf(dir, "a")))
					}
					s = open(t, dir)
					f, err := s.Follow(func(m Manifest) error {
						set(t, s.Table("nodes").Taking(), m.Key.Name, valueOf(m.Object))
						return nil
					})
					require.NoError(t, err)
					require.NoError(t, f.Read())
					defer f.watcher.Close()
					written(t, s)
					check(t, s, dir, map[string]string{"a": want})
				})
			}
		}
	}
}

// draft writes the manifest of an object, and does not put it in its place.
func draft(t *testing.T, s *Store, o Object) (whole string, manifest left) {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	whole = filepath.Join(s.cfg.Data, scratch, "nodes")
	_, err = fill(whole, toYAML(text), false)
	require.NoError(t, err)
	return whole, left{lstat(whole), version(o)}
}

// TestAnEditBesideTheWriteOfAManifestStays edits a manifest after the store has found it as it left it.
func TestAnEditBesideTheWriteOfAManifestStays(t *testing.T) {
	edit := func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path+".new", []byte("by hand"), 0o640))
		require.NoError(t, os.Rename(path+".new", path))
	}
	for name, c := range map[string]struct {
		written, removed bool // before; by the store
		edit             func(*testing.T, string)
		want             string // of the manifest
	}{
		"edited":                           {written: true, edit: edit, want: "by hand"},
		"removed":                          {written: true, edit: func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }},
		"put where there is none":          {edit: edit, want: "by hand"},
		"edited, and removed by the store": {written: true, removed: true, edit: edit, want: "by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			nodes, a := s.Table("nodes"), Key{Name: "a"}
			set(t, nodes, "a", "x1")
			if c.written {
				written(t, s)
				set(t, nodes, "a", "x2")
			}
			whole, next := draft(t, s, nodes.Get(a))
			if c.removed {
				next = left{}
			}
			err := nodes.swap(a, false, next, func(path string, old identity) error {
				c.edit(t, path)
				if c.removed {
					return removeUnedited(path, whole, old)
				}
				return exchange(whole, path, old, next.identity)
			})
			if !errors.Is(err, errEdited) {
				t.Error(err)
			}
			if text, _ := os.ReadFile(manifestOf(dir, "a")); string(text) != c.want {
				t.Errorf("the manifest is %q, want %q", text, c.want)
			}
			if _, ours := nodes.compare(a); ours {
				t.Error("the edit is taken for the store's")
			}
		})
	}
}
