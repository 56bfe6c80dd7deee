package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/require"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	decode := func(_ string, _ Key, text []byte) (Object, error) {
		object := &v1.Node{}
		return object, sigsyaml.UnmarshalStrict(text, object)
	}
	restore := func(_ string, text []byte) (Object, error) { return decode("", Key{}, text) }
	encode := func(o Object) ([]byte, error) { return json.Marshal(o) }
	s, err := Open(Config{Data: dir, Decode: decode, Encode: encode, Restore: restore, Log: slog.New(slog.DiscardHandler)}, []string{"nodes"}, []string{"leases"})
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func object(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u"}}
}

func put(t *testing.T, table *Table, old Object, o Object) {
	t.Helper()
	require.NoError(t, table.Put(old, o))
}

func TestChangeFromWhatIsNoLongerThereIsRefused(t *testing.T) {
	nodes := open(t, t.TempDir()).Table("nodes")
	first, second := object("a"), object("a")
	put(t, nodes, nil, first)
	put(t, nodes, first, second)
	if err := nodes.Put(first, object("a")); !errors.Is(err, ErrChanged) {
		t.Errorf("put: %v", err)
	}
	if err := nodes.Put(nil, object("a")); !errors.Is(err, ErrChanged) {
		t.Errorf("create: %v", err)
	}
	if _, err := nodes.Remove(first); !errors.Is(err, ErrChanged) {
		t.Errorf("remove: %v", err)
	}
	if nodes.Get(Key{Name: "a"}) != Object(second) {
		t.Error("the object is another one")
	}
}

func TestRevisionsGrowAcrossTablesAndRestarts(t *testing.T) {
	dir, last := t.TempDir(), uint64(0)
	for range 3 {
		s := open(t, dir)
		for _, name := range []string{"nodes", "leases", "nodes"} {
			table := s.Table(name)
			put(t, table, table.Get(Key{Name: "a"}), object("a"))
			revision, err := strconv.ParseUint(table.Get(Key{Name: "a"}).GetResourceVersion(), 10, 64)
			if err != nil || revision <= last {
				t.Errorf("after %d came %d, %v", last, revision, err)
			}
			last = revision
		}
		require.NoError(t, s.Close())
	}
}

func TestCursorSeesEveryChangeOnceAndInOrder(t *testing.T) {
	nodes := open(t, t.TempDir()).Table("nodes")
	a := object("a")
	put(t, nodes, nil, a)
	objects, cursor, revision := nodes.From("", Interest{})
	if len(objects) != 1 || revision != nodes.Revision() {
		t.Fatalf("from: %v %d", objects, revision)
	}
	since, err := nodes.Since(revision, Interest{})
	require.NoError(t, err)
	b := object("b")
	put(t, nodes, nil, b)
	put(t, nodes, b, object("b"))
	if _, err := nodes.Remove(a); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Cursor{cursor, since} {
		changes, _, err := c.Next()
		var seen []string
		for _, change := range changes {
			seen = append(seen, string(change.Type)+" "+change.New.GetName())
		}
		if got := strings.Join(seen, ", "); err != nil || got != "ADDED b, MODIFIED b, DELETED a" {
			t.Errorf("saw %s, %v", got, err)
		}
		if changes, _, err := c.Next(); err != nil || len(changes) > 0 {
			t.Errorf("then %v, %v; expected nothing", changes, err)
		}
		c.Close()
	}
	if n := len(nodes.history.attributes); n != 0 {
		t.Errorf("%d attributes are still followed", n)
	}
}

// TestCursorIsOfferedOnlyWhatItsInterestTouches holds that a cursor is not woken by other changes, and
// falls behind by its own only.
func TestCursorIsOfferedOnlyWhatItsInterestTouches(t *testing.T) {
	nodes := open(t, t.TempDir()).Table("leases")
	zone := func(o Object) string { return o.GetLabels()["zone"] }
	interest := Interest{Attribute: "zone", Value: "b", Of: zone}
	_, cursor, start := nodes.From("", interest)
	in := func(name, zone string) *v1.Node {
		o := object(name)
		o.Labels = map[string]string{"zone": zone}
		return o
	}
	moving := in("moving", "a")
	put(t, nodes, nil, moving)
	var other Object
	for range depth / 2 {
		next := in("other", "c")
		put(t, nodes, other, next)
		other = next
	}
	select {
	case <-cursor.More():
		t.Error("the cursor was woken by changes of other zones")
	default:
	}
	here, gone := in("moving", "b"), in("moving", "c")
	put(t, nodes, moving, here)
	put(t, nodes, here, gone)
	<-cursor.More()
	since, err := nodes.Since(start, interest)
	require.NoError(t, err)
	for _, c := range []*Cursor{cursor, since} {
		changes, revision, err := c.Next()
		require.NoError(t, err)
		if len(changes) != 2 || changes[0].New != Object(here) || changes[1].New != Object(gone) || revision != nodes.Revision() {
			t.Errorf("offered %v up to %d; expected the two changes of the node that was in the zone", changes, revision)
		}
	}
	for range depth + 1 {
		next := in("other", "c")
		put(t, nodes, other, next)
		other = next
	}
	if _, _, err := cursor.Next(); err != nil {
		t.Errorf("after many changes of other zones: %v", err)
	}
}

func TestCursorThatFellBackTooFarIsExpired(t *testing.T) {
	s := open(t, t.TempDir())
	leases := s.Table("leases")
	start := leases.Revision()
	_, slow, _ := leases.From("", Interest{})
	var last Object
	for range depth + 1 {
		next := object("a")
		put(t, leases, last, next)
		last = next
	}
	if _, _, err := slow.Next(); !errors.Is(err, ErrExpired) {
		t.Errorf("next: %v", err)
	}
	if _, err := leases.Since(start, Interest{}); !errors.Is(err, ErrExpired) {
		t.Errorf("since the start: %v", err)
	}
	if _, err := leases.Since(s.Revision()+1, Interest{}); !errors.Is(err, ErrExpired) {
		t.Errorf("since the future: %v", err)
	}
	c, err := leases.Since(s.Revision()-1, Interest{})
	require.NoError(t, err)
	if changes, _, err := c.Next(); err != nil || len(changes) != 1 || changes[0].Type != watch.Modified {
		t.Errorf("the last change: %v, %v", changes, err)
	}
}

// TestHistoryIsBoundedByTheBytesOfItsObjects changes objects of 900 KB in tables on disk and in memory.
func TestHistoryIsBoundedByTheBytesOfItsObjects(t *testing.T) {
	const size, changes = 900 << 10, 120
	s := open(t, t.TempDir())
	for _, name := range []string{"nodes", "leases"} {
		table := s.Table(name)
		_, slow, start := table.From("", Interest{})
		var last Object
		for range changes {
			next := object("a")
			next.Annotations = map[string]string{"a": strings.Repeat("a", size)}
			put(t, table, last, next)
			last = next
		}
		h, held := &table.history, 0
		for _, change := range h.ring {
			if change != nil {
				held += change.size
			}
		}
		if held < kept/2 || held > kept || held != h.bytes || h.warmBytes > freshBytes {
			t.Errorf("%s: the history has %d bytes and says %d, of which %d are fresh", name, held, h.bytes, h.warmBytes)
		}
		if _, _, err := slow.Next(); !errors.Is(err, ErrExpired) {
			t.Errorf("%s: a watch that took nothing: %v", name, err)
		}
		if _, err := table.Since(start, Interest{}); !errors.Is(err, ErrExpired) {
			t.Errorf("%s: since the start: %v", name, err)
		}
		c, err := table.Since(table.Revision()-5, Interest{})
		require.NoError(t, err)
		if latest, _, err := c.Next(); err != nil || len(latest) != 5 {
			t.Errorf("%s: %d of the last five changes, %v", name, len(latest), err)
		}
	}
}

// TestManifestInANewDirectoryIsReadOnceItsWriterIsDone holds that a manifest is left
// alone while it is written, in a directory that is made for it too.
func TestManifestInANewDirectoryIsReadOnceItsWriterIsDone(t *testing.T) {
	dir := t.TempDir()
	var admitted []Key
	f, err := open(t, dir).Follow(func(m Manifest) error {
		admitted = append(admitted, m.Key)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, f.Read())
	defer f.watcher.Close()
	team := filepath.Join(dir, "nodes", "team")
	require.NoError(t, os.MkdirAll(team, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(team, "a.yaml"), nil, 0o644))
	start := time.Now()
	f.noticed(fsnotify.Event{Name: team, Op: fsnotify.Create})
	if f.settled(start.Add(settle - 1)); len(admitted) > 0 {
		t.Errorf("%v is read while it is written", admitted)
	}
	if f.settled(time.Now().Add(settle)); len(admitted) != 1 {
		t.Errorf("%v is read, want team/a", admitted)
	}
}

func TestDirectoryServesOneProcess(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := Open(Config{Data: dir}, nil, nil); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("got %v", err)
	}
}

func TestWriteThatFailsChangesNothing(t *testing.T) {
	dir := t.TempDir()
	nodes := open(t, dir).Table("nodes")
	a := object("a")
	put(t, nodes, nil, a)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, scratch)))
	require.NoError(t, nodes.store.journal.close())
	revision := nodes.Revision()
	if err := nodes.Put(a, object("a")); err == nil {
		t.Error("no error")
	}
	if nodes.Get(Key{Name: "a"}) != Object(a) || nodes.Revision() != revision {
		t.Error("the object changed all the same")
	}
}

func TestPathsOutsideTheTablesAreNotFound(t *testing.T) {
	s := open(t, t.TempDir())
	for _, path := range []string{".revision", ".tmp/x.yaml", "nodes", "nodes/a.txt", "nodes/.a.yaml.swp", "nodes/.a.yaml", "nodes/a/b/c.yaml", "leases/a.yaml", "other/a.yaml", "../x.yaml"} {
		if table, key := s.place(filepath.Join(s.cfg.Data, path)); table != nil {
			t.Errorf("%s is %s of %s", path, key, table.name)
		}
	}
	if table, key := s.place(filepath.Join(s.cfg.Data, "nodes/a.b.yaml")); table != s.Table("nodes") || key != (Key{Name: "a.b"}) {
		t.Errorf("nodes/a.b.yaml is %v", key)
	}
}

func TestListIsInOrder(t *testing.T) {
	leases := open(t, t.TempDir()).Table("leases")
	for _, key := range []Key{{"b", "a"}, {"a", "b"}, {"a", "a"}} {
		o := object(key.Name)
		o.Namespace = key.Namespace
		put(t, leases, nil, o)
	}
	all, _ := leases.List("")
	if got := fmt.Sprint(KeyOf(all[0]), KeyOf(all[1]), KeyOf(all[2])); got != "a/a a/b b/a" {
		t.Error(got)
	}
	if of, _ := leases.List("a"); len(of) != 2 || !leases.Holds("b") || leases.Holds("c") {
		t.Errorf("in a: %v", of)
	}
}
