package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
)

var records = []record{
	{item{"nodes", Key{"", "a"}}, kindPut, 7, left{identity{0, 1_700_000_000_000_000_000, 300}, 5}, []byte("an object")},
	{item{"pods", Key{"default", "b"}}, kindRemoved, 1 << 60, left{}, []byte{}},
	{item{"nodes", Key{"", "a"}}, kindNoted, 8, left{identity{0, -1, 1}, 7}, []byte{}},
}

func encoded(records []record) (text []byte, ends []int) {
	for _, r := range records {
		text = append(text, r.encode()...)
		ends = append(ends, len(text))
	}
	return text, ends
}

// TestJournalIsReadButForDamage cuts a journal at every byte, and changes every byte: the other records are read, those
// before where the length of one is damaged, and the bytes that are none are returned.
func TestJournalIsReadButForDamage(t *testing.T) {
	text, ends := encoded(records)
	check := func(what string, text []byte, want []record, unread []byte) {
		t.Helper()
		found, rest, end := readRecords(text)
		if len(found) != len(want) || len(want) > 0 && !reflect.DeepEqual(found, want) {
			t.Errorf("%s: found %+v, want %+v", what, found, want)
		}
		if !bytes.Equal(rest, unread) {
			t.Errorf("%s: not read were the bytes %q, want %q", what, rest, unread)
		}
		if last, _, _ := readRecords(text[:end]); len(last) != len(want) {
			t.Errorf("%s: the last record does not end at %d", what, end)
		}
	}
	begin := 0
	for i, end := range ends {
		for n := begin; n < end; n++ {
			check(fmt.Sprint("cut at ", n), text[:n], records[:i], text[begin:n])
			damaged := bytes.Clone(text)
			damaged[n] ^= 0x40
			want, unread := slices.Concat(records[:i], records[i+1:]), damaged[begin:end]
			if n < begin+4 {
				want, unread = records[:i], damaged[begin:]
			}
			check(fmt.Sprint("changed at ", n), damaged, want, unread)
		}
		begin = end
	}
	check("whole", text, records, nil)
}

func FuzzJournalIsReadButForDamage(f *testing.F) {
	text, _ := encoded(records)
	f.Add(text)
	f.Add(text[:len(text)-1])
	f.Add(text[1:])
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, text []byte) {
		found, rest, end := readRecords(text)
		if !bytes.HasSuffix(rest, text[end:]) || len(rest) > len(text) || len(found) == 0 != bytes.Equal(rest, text) {
			t.Errorf("read %d records up to byte %d, and not read %d bytes, of %d", len(found), end, len(rest), len(text))
		}
	})
}

// kill ends a store as SIGKILL does.
func kill(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, errors.Join(s.journal.close(), s.lock.Close()))
}

func labelled(name, value string) Object {
	o := object(name)
	o.Labels = map[string]string{"v": value}
	return o
}

func valueOf(o Object) string {
	if o == nil {
		return ""
	}
	return o.GetLabels()["v"]
}

func manifestOf(dir, name string) string { return filepath.Join(dir, "nodes", name+".yaml") }

// set stores a value, and removes the object where it is empty.
func set(t *testing.T, table *Table, name, value string) {
	t.Helper()
	old := table.Get(Key{Name: name})
	switch {
	case value != "":
		put(t, table, old, labelled(name, value))
	case old != nil:
		_, err := table.Remove(old)
		require.NoError(t, err)
	}
}

func written(t *testing.T, s *Store) {
	t.Helper()
	if left, err := s.writeManifests(); left || err != nil {
		t.Fatalf("manifests are left: %v, %v", left, err)
	}
}

// check compares the objects of a store, and their manifests, with their values.
func check(t *testing.T, s *Store, dir string, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := valueOf(s.Table("nodes").Get(Key{Name: name})); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
		text, err := os.ReadFile(manifestOf(dir, name))
		if value == "" && err == nil || value != "" && !strings.Contains(string(text), "v: "+value+"\n") {
			t.Errorf("the manifest of %s, %q: %v\n%s", name, value, err, text)
		}
	}
}

// TestKilledStoreHasEveryChange kills a store between random changes and writes of manifests.
func TestKilledStoreHasEveryChange(t *testing.T) {
	seed := campaign.Seed(t, uint64(time.Now().UnixNano()))
	t.Logf("EVICTD_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir, want, last := t.TempDir(), map[string]string{}, uint64(0)
	for range 40 {
		s := open(t, dir)
		check(t, s, dir, want)
		if text, err := filepath.Glob(filepath.Join(dir, journalDir, "*")); err != nil || len(text) != 2 {
			t.Errorf("the journal has %q, %v", text, err)
		}
		if _, empty := s.journal.state(); !empty {
			t.Error("the journal is not empty after the start")
		}
		for range random.IntN(30) {
			name, value := fmt.Sprint("n", random.IntN(4)), ""
			if random.IntN(3) > 0 {
				value = fmt.Sprintf("x%d", random.Uint32())
			}
			switch random.IntN(8) {
			case 0:
				written(t, s)
			case 1: // a change while manifests are written
				taken, err := s.journal.turn()
				require.NoError(t, err)
				set(t, s.Table("nodes"), name, value)
				want[name] = value
				for i, p := range taken {
					require.NoError(t, s.tables[i.resource].bring(i.Key, p.object, false))
				}
				if random.IntN(2) == 0 {
					require.NoError(t, s.journal.empty())
				} else {
					s.journal.putBack(taken)
				}
			default:
				set(t, s.Table("nodes"), name, value)
				want[name] = value
			}
		}
		if s.Revision() < last {
			t.Errorf("revision %d after %d", s.Revision(), last)
		}
		last = s.Revision()
		if random.IntN(4) > 0 {
			kill(t, s)
			continue
		}
		require.NoError(t, s.Close())
		for name, value := range want {
			if _, err := os.Stat(manifestOf(dir, name)); (err == nil) != (value != "") {
				t.Errorf("after an orderly end the manifest of %s, %q: %v", name, value, err)
			}
		}
	}
}

// TestChangeThatAVersionCannotReadIsKept starts on a journal that a version cannot read, once with and once without
// the resource, and then with a version that can. Its files are the same after a start that was repeated.
func TestChangeThatAVersionCannotReadIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s.Table("nodes"), "a", "x1")
	written(t, s)
	set(t, s.Table("nodes"), "a", "x2")
	set(t, s.Table("nodes"), "b", "x2")
	kill(t, s)
	whole := require.ReadFile(t, filepath.Join(dir, journalDir, "0"))
	whole = append(whole, require.ReadFile(t, filepath.Join(dir, journalDir, "1"))...)
	cfg, kept := s.cfg, ""
	cfg.Restore = func(string, []byte) (Object, error) { return nil, errors.New("of a newer version") }
	for range 2 {
		older, err := Open(cfg, []string{"nodes"}, nil)
		require.NoError(t, err)
		check(t, older, dir, map[string]string{"a": "x1", "b": ""})
		require.NoError(t, older.Close())
		files, err := filepath.Glob(filepath.Join(dir, journalDir, "unread-*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("kept %q, %v", files, err)
		}
		kept = files[0]
		require.NoError(t, os.WriteFile(filepath.Join(dir, journalDir, "0"), whole, 0o640))
	}
	cfg.Restore = s.cfg.Restore
	other, err := Open(cfg, []string{"pods"}, nil)
	require.NoError(t, err)
	require.NoError(t, other.Close())
	if text := require.ReadFile(t, kept); !bytes.Equal(text, whole) {
		t.Errorf("kept %q, want %q", text, whole)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, journalDir, "0"), require.ReadFile(t, kept), 0o640))
	check(t, open(t, dir), dir, map[string]string{"a": "x2", "b": "x2"})
}

// TestDamageIsNotReadBehindLaterRecords damages the length of a record, and adds another of as many bytes in its place:
// the records behind it, which were kept, are older than what has happened since.
func TestDamageIsNotReadBehindLaterRecords(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	used := filepath.Join(dir, journalDir, fmt.Sprint(s.journal.current))
	set(t, s.Table("nodes"), "a", "x1234567")
	set(t, s.Table("nodes"), "b", "x1")
	kill(t, s)
	text := require.ReadFile(t, used)
	text[3] ^= 0x40
	require.NoError(t, os.WriteFile(used, text, 0o640))
	s = open(t, dir)
	check(t, s, dir, map[string]string{"a": "", "b": ""})
	if filepath.Join(dir, journalDir, fmt.Sprint(s.journal.current)) != used {
		t.Fatal("another file is used")
	}
	set(t, s.Table("nodes"), "a", "x") // its revision, which is greater by far, takes 7 bytes more
	kill(t, s)
	check(t, open(t, dir), dir, map[string]string{"a": "x", "b": ""})
}

// TestManifestsAreWrittenOnceForSeveralChanges holds that only the last state is written.
func TestManifestsAreWrittenOnceForSeveralChanges(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 3 {
		set(t, s.Table("nodes"), "a", fmt.Sprint("x", i))
	}
	if n := len(s.journal.pending); n != 1 {
		t.Errorf("%d manifests are pending, want 1", n)
	}
	written(t, s)
	check(t, s, dir, map[string]string{"a": "x2"})
}

// TestEditBeforeAPendingManifestIsWritten edits a manifest whose object has changed, with and without
// a kill between, and with and without the change before in the journal. The edit is admitted and not replaced.
func TestEditBeforeAPendingManifestIsWritten(t *testing.T) {
	remove := func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }
	edit := func(t *testing.T, path string) {
		text := string(require.ReadFile(t, path))
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, "v: x1\n", "v: by-hand\n", 1)), 0o640))
	}
	create := func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte("metadata: {name: a, labels: {v: by-hand}}\n"), 0o640))
	}
	cases := map[string]struct {
		before, after string // values of which the manifest has the first
		edit          func(*testing.T, string)
		want          string
	}{
		"a changed object is edited":          {"x1", "x2", edit, "by-hand"},
		"a changed object's file is removed":  {"x1", "x2", remove, ""},
		"a removed object is edited":          {"x1", "", edit, "by-hand"},
		"a removed object's file is removed":  {"x1", "", remove, ""},
		"a new object is put by hand, too":    {"", "x2", create, "by-hand"},
		"an object is put by hand as another": {"x1", "x2", create, "by-hand"},
	}
	for name, c := range cases {
		for n := range 4 {
			killed, emptied := n&1 > 0, n&2 > 0
			t.Run(fmt.Sprintf("%s, killed: %v, emptied: %v", name, killed, emptied), func(t *testing.T) {
				dir := t.TempDir()
				s := open(t, dir)
				set(t, s.Table("nodes"), "a", c.before)
				if emptied {
					require.NoError(t, second(s.flush()))
				} else {
					require.NoError(t, s.Table("nodes").bring(Key{Name: "a"}, s.Table("nodes").Get(Key{Name: "a"}), false))
				}
				set(t, s.Table("nodes"), "a", c.after)
				c.edit(t, manifestOf(dir, "a"))
				if killed {
					kill(t, s)
					s = open(t, dir)
				}
				f, err := s.Follow(func(m Manifest) error {
					set(t, s.Table("nodes").Taking(), m.Key.Name, valueOf(m.Object))
					return nil
				})
				require.NoError(t, err)
				before := lstat(manifestOf(dir, "a"))
				require.NoError(t, second(s.writeManifests()))
				if now := lstat(manifestOf(dir, "a")); now != before {
					t.Errorf("before its admission the edit is replaced: %+v, then %+v", before, now)
				}
				require.NoError(t, f.Read())
				defer f.watcher.Close()
				require.NoError(t, s.Close())
				s = open(t, dir)
				check(t, s, dir, map[string]string{"a": c.want})
			})
		}
	}
}

// TestEditOfAWrittenManifestOutlivesTheJournal edits a manifest that is written, whose change is in the
// journal still.
func TestEditOfAWrittenManifestOutlivesTheJournal(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s.Table("nodes"), "a", "x0")
	set(t, s.Table("nodes"), "a", "x1")
	require.NoError(t, s.Table("nodes").bring(Key{Name: "a"}, s.Table("nodes").Get(Key{Name: "a"}), false))
	text := string(require.ReadFile(t, manifestOf(dir, "a")))
	require.NoError(t, os.WriteFile(manifestOf(dir, "a"), []byte(strings.Replace(text, "v: x1\n", "v: by-hand\n", 1)), 0o640))
	kill(t, s)
	check(t, open(t, dir), dir, map[string]string{"a": "by-hand"})
}

// TestKillBetweenAManifestAndItsNote writes a manifest while its object changes again, and no more.
func TestKillBetweenAManifestAndItsNote(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, value := range []string{"x1", "x2"} {
		set(t, s.Table("nodes"), "a", value)
		written(t, s)
	}
	set(t, s.Table("nodes"), "a", "x3")
	taken, err := s.journal.turn()
	require.NoError(t, err)
	set(t, s.Table("nodes"), "a", "x4")
	s.journal.pending = map[item]pending{} // so that there is no note
	require.NoError(t, s.tables["nodes"].bring(Key{Name: "a"}, taken[item{"nodes", Key{Name: "a"}}].object, false))
	kill(t, s)
	check(t, open(t, dir), dir, map[string]string{"a": "x4"})
}

// TestPendingManifestsAreNoEdits holds that a manifest that is not written or not removed yet is not taken for
// an edit.
func TestPendingManifestsAreNoEdits(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	set(t, s.Table("nodes"), "a", "x1")
	written(t, s)
	set(t, s.Table("nodes"), "a", "")
	set(t, s.Table("nodes"), "b", "x2")
	f, err := s.Follow(func(m Manifest) error {
		t.Errorf("%s is taken for an edit", m.Key)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, f.Read())
	defer f.watcher.Close()
	written(t, s)
	require.NoError(t, f.rescan())
	check(t, s, dir, map[string]string{"a": "", "b": "x2"})
}

// TestFullJournalWaitsForManifests stores more than the journal's files have room for.
func TestFullJournalWaitsForManifests(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	text, want := strings.Repeat("x", 1<<20), map[string]string{}
	for i := range 2*maxJournal>>20 + 4 {
		o := labelled(fmt.Sprint("n", i%5), fmt.Sprint("x", i))
		o.SetAnnotations(map[string]string{"a": text})
		put(t, s.Table("nodes"), s.Table("nodes").Get(KeyOf(o)), o)
		want[o.GetName()] = valueOf(o)
	}
	if s.journal.sizes[0] > maxJournal || s.journal.sizes[1] > maxJournal {
		t.Errorf("the journal has %d bytes", s.journal.sizes)
	}
	kill(t, s)
	check(t, open(t, dir), dir, want)
}

// TestWritersAndManifestsBesideEachOther stores by several goroutines while manifests are written, with a sync before
// each acknowledgement.
func TestWritersAndManifestsBesideEachOther(t *testing.T) {
	dir, want := t.TempDir(), map[string]string{}
	s := open(t, dir)
	s.journal.sync = true
	ctx, stop := context.WithCancel(t.Context())
	var running, writing sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			if _, err := s.flush(); err != nil {
				t.Error(err)
			}
		}
	})
	for writer := range 4 {
		want[fmt.Sprint("n", writer)] = "x29"
		writing.Go(func() {
			for i := range 30 {
				set(t, s.Table("nodes"), fmt.Sprint("n", writer), fmt.Sprint("x", i))
				set(t, s.Table("nodes"), fmt.Sprint("other", writer), []string{"", "y"}[i%2])
			}
		})
	}
	writing.Wait()
	stop()
	running.Wait()
	kill(t, s)
	check(t, open(t, dir), dir, want)
}

func second[T any](_ T, err error) error { return err }

// TestCopyOfTheDirectoryIsServed copies a directory in which manifests are pending, with the times of files.
func TestCopyOfTheDirectoryIsServed(t *testing.T) {
	dir, to := t.TempDir(), t.TempDir()
	s := open(t, dir)
	set(t, s.Table("nodes"), "a", "x1")
	set(t, s.Table("nodes"), "b", "x1")
	require.NoError(t, second(s.flush()))
	set(t, s.Table("nodes"), "a", "x2")
	set(t, s.Table("nodes"), "b", "")
	require.NoError(t, os.CopyFS(to, os.DirFS(dir)))
	for _, name := range []string{"a", "b"} {
		info, err := os.Stat(manifestOf(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(manifestOf(to, name), info.ModTime(), info.ModTime()))
	}
	check(t, open(t, to), to, map[string]string{"a": "x2", "b": ""})
}
