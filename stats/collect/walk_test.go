package collect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// placed is a directory that is looked at by its path.
func placed(path string) PodPath { return PodPath{filepath.Dir(path), filepath.Base(path)} }

func onward() bool { return true }

// whole looks at a directory whole.
func whole(t *testing.T, path string) *tree {
	t.Helper()
	room := maxRemembered
	w := &tree{place: placed(path)}
	if _, err := w.measure(time.Now(), true, &room, onward); err != nil || w.lastFull.IsZero() {
		t.Fatalf("got %v, %v", w, err)
	}
	return w
}

func TestADirectoryOccupiesItsBlocksAndDistinctInodes(t *testing.T) {
	dir := mounted(t, "size=4m")
	put(t, dir+"/sub/deep/a", string(make([]byte, 8192)))
	require.NoError(t, os.Link(dir+"/sub/deep/a", dir+"/hard"))
	require.NoError(t, os.Symlink("/usr", dir+"/soft"))
	sparse, err := os.Create(dir + "/sparse")
	require.NoError(t, err)
	require.NoError(t, sparse.Truncate(1<<30))
	sparse.Close()
	// the directory, sub, deep, a with its two names, the symbolic link, sparse
	if w := whole(t, dir); w.bytes != 8192 || w.inodes != 6 {
		t.Errorf("got %d bytes, %d inodes", w.bytes, w.inodes)
	}
}

func TestWhatIsMountedBelowIsAnotherFilesystem(t *testing.T) {
	dir := mounted(t, "size=1m")
	require.NoError(t, os.Mkdir(dir+"/other", 0o755))
	t.Run("mounted", func(t *testing.T) {
		mountAt(t, dir+"/other", "size=1m")
		put(t, dir+"/other/file", string(make([]byte, 4096)))
		if w := whole(t, dir); w.bytes != 0 || w.inodes != 1 {
			t.Errorf("got %d bytes, %d inodes", w.bytes, w.inodes)
		}
	})
}

func TestFilesThatVanishDuringTheWalkArePassedOver(t *testing.T) {
	dir := mounted(t, "size=64m,nr_inodes=0")
	const files = walkPerStep + 100
	for i := range files {
		put(t, fmt.Sprintf("%s/d%d/f", dir, i/100), "")
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/d%d/%d", dir, i/100, i), nil, 0o644))
	}
	room := maxRemembered
	w := tree{place: placed(dir)}
	_, err := w.measure(time.Now(), true, &room, func() bool {
		for i := range files / 100 {
			if err := os.RemoveAll(fmt.Sprintf("%s/d%d", dir, i)); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if err != nil || w.inodes < walkPerStep || w.inodes >= files+files/100 {
		t.Errorf("got %d inodes, %v", w.inodes, err)
	}
}

func TestADirectoryDeeperThanTheLimitIsCountedToTheLimit(t *testing.T) {
	dir := t.TempDir()
	var deep strings.Builder
	deep.WriteString(dir)
	for range walkDepth + 10 {
		deep.WriteString("/d")
	}
	require.NoError(t, os.MkdirAll(deep.String(), 0o755))
	room := maxRemembered
	w := tree{place: placed(dir)}
	if _, err := w.measure(time.Now(), true, &room, onward); w.inodes != walkDepth+1 || !errors.Is(err, errIncomplete) {
		t.Errorf("got %d inodes, %v", w.inodes, err)
	}
}

// What a pod may do to a directory of its own.
func TestAHostileDirectoryIsMeasuredAndNothingInItIsOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: needs root, to make devices")
	}
	dir := t.TempDir()
	inodes := int64(1)
	add := func(err error) {
		t.Helper()
		require.NoError(t, err)
		inodes++
	}
	add(unix.Mkfifo(dir+"/pipe", 0o600))
	add(unix.Mknod(dir+"/device", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))))
	add(unix.Mknod(dir+"/disk", unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))))
	add(os.Symlink("b", dir+"/a"))
	add(os.Symlink("a", dir+"/b"))
	add(os.Symlink("/", dir+"/everything"))
	add(os.Mkdir(dir+"/\x1b[2J\n..\xff", 0o700))
	socket, err := net.Listen("unix", dir+"/socket")
	add(err)
	defer socket.Close()
	// A path far longer than PATH_MAX, made from below.
	at, err := unix.Open(dir, unix.O_PATH, 0)
	require.NoError(t, err)
	name := strings.Repeat("d", 255)
	for range 300 {
		add(unix.Mkdirat(at, name, 0o700))
		next, err := unix.Openat(at, name, unix.O_PATH, 0)
		if unix.Close(at); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	defer unix.Close(at)
	file, err := unix.Openat(at, "hidden", unix.O_CREAT|unix.O_WRONLY, 0o600)
	add(err)
	defer unix.Close(file)
	if _, err := unix.Write(file, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	w := whole(t, dir)
	if w.inodes != inodes || w.bytes < 1<<20 {
		t.Errorf("got %d inodes of %d, %d bytes", w.inodes, inodes, w.bytes)
	}
}

func TestADirectoryOfManyEntriesIsWalkedInSteps(t *testing.T) {
	dir := inMemory(t)
	put(t, dir+"/first", "x")
	const many = 2*walkPerStep + 100
	for i := range many {
		require.NoError(t, os.Link(dir+"/first", fmt.Sprintf("%s/%d", dir, i)))
	}
	steps := 0
	room := maxRemembered
	w := tree{place: placed(dir)}
	entries, err := w.measure(time.Now(), true, &room, func() bool { steps++; return true })
	if err != nil || entries != many+1 || steps != 2 || w.inodes != 2 {
		t.Errorf("%d entries in %d steps, %d inodes, %v", entries, steps, w.inodes, err)
	}
}

// forest fills a directory with files in directories of a hundred, all of them old
// when looked at a while later.
func forest(t testing.TB, dir string, files int) string {
	t.Helper()
	for i := range files {
		if i%100 == 0 {
			require.NoError(t, os.Mkdir(fmt.Sprintf("%s/d%d", dir, i/100), 0o755))
		}
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/d%d/%d", dir, i/100, i), []byte("x"), 0o644))
	}
	return dir
}

// revisited looks at a tree twice: whole, and a while later again, after a change.
type revisited struct {
	*tree
	t    *testing.T
	room int
	now  time.Time
}

func revisit(t *testing.T, dir string) *revisited {
	w := &revisited{&tree{place: placed(dir)}, t, maxRemembered, time.Now().Add(time.Hour)}
	w.again(true)
	return w
}

func (w *revisited) again(whole bool) (entries int) {
	w.t.Helper()
	w.now = w.now.Add(time.Minute)
	entries, err := w.measure(w.now, whole, &w.room, onward)
	require.NoError(w.t, err)
	return entries
}

// rule: M.18
func TestAQuickLookReadsOnlyDirectoriesThatHaveChanged(t *testing.T) {
	const files = 3000
	dir := forest(t, inMemory(t), files)
	w := revisit(t, dir)
	if w.inodes != files+files/100+1 {
		t.Fatalf("got %d inodes", w.inodes)
	}
	if n := w.again(false); n != files/100 || w.inodes != files+files/100+1 {
		t.Errorf("unchanged: %d entries looked at, %d inodes", n, w.inodes)
	}
	put(t, dir+"/d7/new", "x")
	put(t, dir+"/d7/sub/new", "x")
	require.NoError(t, os.RemoveAll(dir+"/d8"))
	before := w.bytes
	if n := w.again(false); n > 300 || w.inodes != files+files/100+1+3-101 || w.bytes >= before {
		t.Errorf("changed: %d entries looked at, %d inodes, %d bytes after %d", n, w.inodes, w.bytes, before)
	}
	if w.room >= maxRemembered || w.room < maxRemembered-100 {
		t.Errorf("%d of %d left", w.room, maxRemembered)
	}
	quick, bytes := w.inodes, w.bytes
	if w.again(true); w.inodes != quick || w.bytes != bytes {
		t.Errorf("a whole look finds %d inodes and %d bytes, the quick one %d and %d", w.inodes, w.bytes, quick, bytes)
	}
	w.root.releaseRoomBelow(&w.room)
	if w.room != maxRemembered {
		t.Errorf("%d of %d come back", w.room, maxRemembered)
	}
}

func TestAQuickLookSeesFilesGrowThatAreLargeOrWereWrittenTo(t *testing.T) {
	dir := forest(t, inMemory(t), smallTree)
	large := make([]byte, 2<<20)
	put(t, dir+"/d1/large", string(large))
	w := revisit(t, dir)
	appendTo(t, dir+"/d1/large", large)
	before := w.bytes
	if w.again(false); w.bytes < before+2<<20 {
		t.Errorf("a large file: %d after %d", w.bytes, before)
	}
	// The quiet one shows in the next whole look, and then in every one.
	appendTo(t, dir+"/d2/200", large)
	before = w.bytes
	if w.again(false); w.bytes != before {
		t.Errorf("a quiet file: %d after %d", w.bytes, before)
	}
	if w.again(true); w.bytes < before+2<<20 {
		t.Errorf("a whole look: %d after %d", w.bytes, before)
	}
	appendTo(t, dir+"/d2/200", large)
	before = w.bytes
	if w.again(false); w.bytes < before+2<<20 {
		t.Errorf("no longer quiet: %d after %d", w.bytes, before)
	}
}

func appendTo(t *testing.T, file string, data []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
}

func TestATreeThatIsTooLargeToRememberIsLookedAtWhole(t *testing.T) {
	const files = 3000
	dir := forest(t, inMemory(t), files)
	w := &revisited{&tree{place: placed(dir)}, t, 5, time.Now().Add(time.Hour)}
	w.again(true)
	if n := w.again(false); n < files || w.room != 5 {
		t.Errorf("%d entries looked at, room %d", n, w.room)
	}
}

// TestNamesWithoutRoomAreNotHeld has the names of one directory take ten times the memory that there is room for.
func TestNamesWithoutRoomAreNotHeld(t *testing.T) {
	const files, kept = 20_000, 2_000
	dir := inMemory(t)
	long := strings.Repeat("x", 240)
	for i := range files {
		put(t, fmt.Sprint(dir, "/", long, i), "")
	}
	w := &revisited{&tree{place: placed(dir)}, t, kept, time.Now().Add(time.Minute)} // the files were written to recently
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w.again(true)
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 2*kept*(uint64(len(long))+50) || w.inodes != files+1 || w.room != kept {
		t.Errorf("%d inodes in %d bytes, room %d", w.inodes, spent, w.room)
	}
}

func TestNoLinkLeadsOutOfAPlace(t *testing.T) {
	root, secret := t.TempDir(), t.TempDir()
	put(t, secret+"/file", "x")
	put(t, root+"/pods/u/volumes/a/file", "x")
	put(t, root+"/odd\nname/a\nb/file", "x")
	for name, to := range map[string]string{"/pods/u/volumes/link": secret, "/pods/linked": root + "/pods/u"} {
		require.NoError(t, os.Symlink(to, root+name))
	}
	for below, want := range map[string]error{
		"pods/u/volumes/a":            nil,
		"odd\nname/a\nb":              nil,
		"pods/u/volumes/link":         unix.ENOTDIR,
		"pods/linked/volumes/a":       unix.ENOTDIR,
		"pods/u/volumes/../../u":      errName,
		"pods/u/volumes/a/.":          errName,
		"../" + filepath.Base(secret): errName,
		"/etc":                        errName,
		"":                            errName,
		"pods/u/volumes/a/file":       unix.ENOTDIR,
	} {
		room := maxRemembered
		w := tree{place: PodPath{root, below}}
		_, err := w.measure(time.Now(), true, &room, onward)
		if !errors.Is(err, want) || (err == nil) != (w.inodes == 2) {
			t.Errorf("%q: got %v, %d inodes", below, err, w.inodes)
		}
	}
	// The root is the operator's choice and may be moved.
	moved := t.TempDir() + "/kubelet"
	require.NoError(t, os.Symlink(root, moved))
	if w := whole(t, moved+"/pods"); w.inodes < 4 {
		t.Errorf("below a root that is a link: got %d inodes", w.inodes)
	}
}

func TestADirectoryThatIsSwappedForALinkIsNotFollowed(t *testing.T) {
	dir, secret := forest(t, inMemory(t), walkPerStep+200), t.TempDir()
	for i := range 500 {
		put(t, fmt.Sprintf("%s/%d", secret, i), "x")
	}
	room := maxRemembered
	w := tree{place: placed(dir)}
	w.measure(time.Now(), true, &room, func() bool {
		for i := range 102 {
			from := fmt.Sprintf("%s/d%d", dir, i)
			if os.Rename(from, from+".gone") == nil {
				_ = os.Symlink(secret, from)
			}
		}
		return true
	})
	if most := int64(2 * (walkPerStep + 200 + 103)); w.inodes > most {
		t.Errorf("got %d inodes of %d", w.inodes, most)
	}
	if last := whole(t, dir); last.inodes != walkPerStep+200+102+102+1 {
		t.Errorf("after the swap: got %d inodes", last.inodes)
	}
}

// BenchmarkWalk looks at 100,000 files in 1,000 directories.
func BenchmarkWalk(b *testing.B) {
	dir := forest(b, b.TempDir(), 100_000)
	now := time.Now().Add(time.Hour)
	for _, kind := range []struct {
		name  string
		whole bool
	}{{"whole", true}, {"quick", false}} {
		b.Run(kind.name, func(b *testing.B) {
			room := maxRemembered
			w := tree{place: placed(dir)}
			if _, err := w.measure(now, true, &room, onward); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.measure(now, kind.whole, &room, onward); err != nil || w.inodes != 101_001 {
					b.Fatal(w.inodes, err)
				}
			}
		})
	}
}
