package collect

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// whole walks a directory to the end, a few entries a step.
func whole(t *testing.T, path string) *walk {
	t.Helper()
	w, err := newWalk(path)
	if err != nil || w == nil {
		t.Fatalf("got %v, %v", w, err)
	}
	for budget := 3; !w.step(&budget); budget = 3 {
	}
	return w
}

func TestADirectoryOccupiesItsBlocksAndDistinctInodes(t *testing.T) {
	dir := mounted(t, "size=4m")
	put(t, dir+"/sub/deep/a", string(make([]byte, 8192)))
	if err := os.Link(dir+"/sub/deep/a", dir+"/hard"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr", dir+"/soft"); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(dir + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 30); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	// the directory, sub, deep, a with its two names, the symbolic link, sparse
	if w := whole(t, dir); w.bytes != 8192 || w.inodes != 6 {
		t.Errorf("got %d bytes, %d inodes", w.bytes, w.inodes)
	}
}

func TestWhatIsMountedBelowIsAnotherFilesystem(t *testing.T) {
	dir := mounted(t, "size=1m")
	if err := os.Mkdir(dir+"/other", 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("mounted", func(t *testing.T) {
		mountAt(t, dir+"/other", "size=1m")
		put(t, dir+"/other/file", string(make([]byte, 4096)))
		if w := whole(t, dir); w.bytes != 0 || w.inodes != 1 {
			t.Errorf("got %d bytes, %d inodes", w.bytes, w.inodes)
		}
	})
}

func TestFilesThatVanishDuringTheWalkArePassedOver(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		put(t, fmt.Sprintf("%s/d%d/f", dir, i), "x")
	}
	w, err := newWalk(dir)
	if err != nil {
		t.Fatal(err)
	}
	if budget := 1; w.step(&budget) {
		t.Fatal("done after one entry")
	}
	for i := range 20 {
		if err := os.RemoveAll(fmt.Sprintf("%s/d%d", dir, i)); err != nil {
			t.Fatal(err)
		}
	}
	budget := 1000
	if !w.step(&budget) || w.inodes < 1 || w.inodes > 3 {
		t.Errorf("got %d inodes", w.inodes)
	}
}

func TestADirectoryDeeperThanTheLimitIsCountedToTheLimit(t *testing.T) {
	dir := t.TempDir()
	var deep strings.Builder
	deep.WriteString(dir)
	for range walkDepth + 10 {
		deep.WriteString("/d")
	}
	if err := os.MkdirAll(deep.String(), 0o755); err != nil {
		t.Fatal(err)
	}
	if w := whole(t, dir); w.inodes != walkDepth+1 {
		t.Errorf("got %d inodes", w.inodes)
	}
}
