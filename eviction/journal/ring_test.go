package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

const (
	testSegments = 3
	testSize     = 256
)

// recorded are the records of a ring, each key in brackets.
func recorded(t *testing.T, dir string) string {
	t.Helper()
	segments, err := ReadRing(dir)
	require.NoError(t, err)
	var all []string
	for _, s := range segments {
		all = append(all, "["+string(s.Key)+"]")
		for _, r := range s.Records {
			all = append(all, string(r))
		}
	}
	return strings.Join(all, " ")
}

func openRing(t *testing.T, dir string) *Ring {
	t.Helper()
	r, err := OpenRing(dir, testSegments, testSize)
	require.NoError(t, err)
	return r
}

func appendTo(t *testing.T, r *Ring, record string) {
	t.Helper()
	if int64(len(record)) > r.Left() {
		require.NoError(t, r.Begin([]byte("key before "+record)))
	}
	require.NoError(t, r.Append([]byte(record), false))
}

func TestRingKeepsTheLastRecordsAndTheirKeys(t *testing.T) {
	dir := t.TempDir()
	r := openRing(t, dir)
	for i := range 40 {
		appendTo(t, r, fmt.Sprintf("record-%02d", i))
	}
	got := strings.Fields(strings.ReplaceAll(recorded(t, dir), "key before ", ""))
	last := slices.Index(got, "record-39")
	if last != len(got)-1 {
		t.Fatalf("the last record is not the last: %v", got)
	}
	for i, want := last, 39; i >= 0; i-- {
		if name, isKey := strings.CutPrefix(got[i], "["); isKey {
			if name != got[i+1]+"]" {
				t.Errorf("key %s before %s", name, got[i+1])
			}
			continue
		}
		if got[i] != fmt.Sprintf("record-%02d", want) {
			t.Errorf("%s where record-%02d is expected", got[i], want)
		}
		want--
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != testSegments {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, name := range files {
		if info, err := os.Stat(name); err != nil || info.Size() != testSize || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestRingThatIsOpenedAgainContinuesInANewSegment(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, openRing(t, dir), "a")
	appendTo(t, openRing(t, dir), "b")
	if got := recorded(t, dir); got != "[key before a] a [key before b] b" {
		t.Error(got)
	}
}

func TestRecordThatIsTornEndsItsSegment(t *testing.T) {
	dir := t.TempDir()
	r := openRing(t, dir)
	appendTo(t, r, "a")
	appendTo(t, r, "b")
	appendTo(t, r, "c")
	path := r.files[r.at].path
	data := require.ReadFile(t, path)
	data[strings.Index(string(data), " b\n")+1] = 'x'
	require.NoError(t, os.WriteFile(path, data, 0o600))
	if got := recorded(t, dir); got != "[key before a] a" {
		t.Error(got)
	}
	appendTo(t, openRing(t, dir), "d")
	if got := recorded(t, dir); got != "[key before a] a [key before d] d" {
		t.Error(got)
	}
}

func TestRecordTooLargeForASegmentIsRefusedAndNothingIsLost(t *testing.T) {
	dir := t.TempDir()
	r := openRing(t, dir)
	appendTo(t, r, "a")
	large := make([]byte, testSize)
	for _, err := range []error{r.Append(large, true), r.Begin(large)} {
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("got %v", err)
		}
	}
	appendTo(t, r, "b")
	if got := recorded(t, dir); got != "[key before a] a b" {
		t.Error(got)
	}
}

func TestRingThatWasOpenedOnAFullDiskHasItsBlocksWhenItOpens(t *testing.T) {
	disk := smallDisk(t)
	const size = 1 << 20
	dir := filepath.Join(disk, "ring")
	require.NoError(t, os.Mkdir(dir, 0o700))
	free := fill(t, disk)
	for range 2 { // the first time leaves files behind
		if _, err := OpenRing(dir, testSegments, size); err == nil {
			t.Error("a full disk has set files aside")
		}
	}
	free()
	r, err := OpenRing(dir, testSegments, size)
	require.NoError(t, err)
	fill(t, disk)
	for i := range testSegments {
		require.NoError(t, r.Begin(fmt.Appendf(nil, "key %d", i)))
		if err := r.Append([]byte(strings.Repeat("x", size/2)), true); err != nil {
			t.Errorf("segment %d: %v", i, err)
		}
	}
}

func TestRingFollowsNoSymbolicLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(elsewhere, []byte("kept"), 0o600))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "flight-0")))
	if _, err := OpenRing(dir, testSegments, testSize); err == nil {
		t.Error("it was opened")
	}
	if data, _ := os.ReadFile(elsewhere); string(data) != "kept" {
		t.Errorf("the other file holds %q", data)
	}
}

func FuzzRingLine(f *testing.F) {
	f.Add(bytes.TrimSpace(ringLine(nil, 7, []byte(`{"a":1}`))))
	f.Add([]byte("00000000 1 "))
	f.Fuzz(func(t *testing.T, text []byte) {
		number, record, ok := parseRingLine(text)
		if !ok {
			return
		}
		again := bytes.TrimSuffix(ringLine(nil, number, record), []byte{'\n'})
		if n, r, ok := parseRingLine(again); !ok || n != number || !bytes.Equal(r, record) {
			t.Errorf("%q was read as %d %q, and that as %d %q", text, number, record, n, r)
		}
	})
}
