package cgroup

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

func TestANumberIsDigitsAndNothingElse(t *testing.T) {
	for text, want := range map[string]stats.Amount{
		"0\n": stats.Known(0), "42": stats.Known(42), "4611686018427387904": stats.Known(1 << 62),
		"": {}, "max\n": {}, "-1": {}, "+1": {}, "1 2": {}, "0x10": {},
		"9223372036854771712": {}, "9223372036854775808": {}, "18446744073709551616": {}, "99999999999999999999999": {},
	} {
		if got := amount([]byte(text)); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestMountPointsWithBlanksAreUnescaped(t *testing.T) {
	s := captured(t, "v2")
	if got := s.mounts[len(s.mounts)-1]; got.point != "/run/shown in part" || got.root != "/kubepods.slice/kubepods-burstable.slice" {
		t.Errorf("got %+v", got)
	}
}

func TestCoMountedControllersAreOneHierarchy(t *testing.T) {
	mounts, err := readMounts(bytes.NewReader([]byte("33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n")))
	if err != nil || len(mounts) != 1 || !mounts[0].has("cpu") || !mounts[0].has("cpuacct") || mounts[0].has("") {
		t.Errorf("got %+v, %v", mounts, err)
	}
}

func TestAFileLongerThanTheBufferIsReadInWholeLines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory.stat")
	put(t, file, "anon 100\nfile 200\nslab 300\n")
	f, err := OpenFile(file)
	require.NoError(t, err)
	defer f.Close()
	for size, want := range map[int]string{5: "", 11: "anon 100\n", 18: "anon 100\nfile 200\n", 64: "anon 100\nfile 200\nslab 300\n"} {
		if got, err := f.Read(make([]byte, size)); err != nil || string(got) != want {
			t.Errorf("%d bytes: got %q, %v", size, got, err)
		}
	}
}

func TestPidsMayStraddleReads(t *testing.T) {
	text := []byte("1\n22\n0\n333\n4194304\n")
	for cut := range text {
		list := tally{keep: true}
		list.feed(text[:cut])
		list.feed(text[cut:])
		if want := []int{1, 22, 333, 4194304}; !slices.Equal(list.pids, want) {
			t.Errorf("cut at %d: got %v", cut, list.pids)
		}
	}
}

// seed adds every captured file of a name to a corpus.
func seed(f *testing.F, names ...string) {
	for _, name := range names {
		err := filepath.WalkDir("testdata", func(file string, _ os.DirEntry, err error) error {
			if err == nil && filepath.Base(file) == name {
				f.Add([]byte(get(f, file)))
			}
			return err
		})
		require.NoError(f, err)
	}
	f.Add([]byte{})
}

func FuzzMemoryStat(f *testing.F) {
	seed(f, "memory.stat")
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, v := range []Version{V1, V2} {
			var s memoryStat
			parseMemoryStat(b, v, &s)
			for _, a := range []stats.Amount{s.inactiveFile, s.activeFile, s.slabReclaimable, s.refaults} {
				if n, known := a.Get(); n < 0 || n > unlimited || !known && n != 0 {
					t.Fatalf("%v out of %q", a, b)
				}
			}
		}
	})
}

func FuzzMeminfo(f *testing.F) {
	seed(f, "meminfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		m := parseMeminfo(b)
		if min(m.total.Or(0), m.available.Or(0), m.slabReclaimable.Or(0), m.anon.Plus(m.file).Or(0)) < 0 {
			t.Fatalf("%v out of %q", m, b)
		}
	})
}

func FuzzPressure(f *testing.F) {
	seed(f, "memory.pressure", "io.pressure", "cpu.pressure")
	f.Fuzz(func(t *testing.T, b []byte) {
		if s := ParsePressure(b); s.Some < 0 || s.Full < 0 || !s.Known && s != (stats.Stall{}) {
			t.Fatalf("%v out of %q", s, b)
		}
	})
}

func FuzzEvents(f *testing.F) {
	seed(f, "memory.events", "cgroup.events", "memory.oom_control")
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := flat(b, "oom_kill").Or(0); n < 0 {
			t.Fatalf("%d out of %q", n, b)
		}
	})
}

func FuzzProcs(f *testing.F) {
	seed(f, "cgroup.procs", "cgroup.threads")
	f.Fuzz(func(t *testing.T, b []byte) {
		list, counted := tally{keep: true}, tally{}
		list.feed(b)
		counted.feed(b)
		if int64(len(list.pids)) > counted.lines || slices.ContainsFunc(list.pids, func(pid int) bool { return pid <= 0 }) {
			t.Fatalf("%v out of %q", list.pids, b)
		}
	})
}

func FuzzMountinfo(f *testing.F) {
	seed(f, "mountinfo")
	f.Fuzz(func(t *testing.T, b []byte) {
		mounts, err := readMounts(bytes.NewReader(b))
		if err != nil || len(mounts) > bytes.Count(b, []byte("cgroup")) {
			t.Fatalf("%v, %v out of %q", mounts, err, b)
		}
	})
}
