package procfs

import (
	"os"
	"strings"
	"testing"
)

func TestOurOwnStatIsRead(t *testing.T) {
	text, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Skip("skipped: needs /proc:", err)
	}
	if s, ok := ParseStat(text); !ok || s.Parent != os.Getppid() || s.Threads < 1 || s.Started == 0 || s.Dead {
		t.Errorf("read %+v, %v from %q", s, ok, text)
	}
}

func FuzzParseStat(f *testing.F) {
	own, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		f.Skip("skipped: needs /proc:", err)
	}
	f.Add("sh", own)
	f.Add("a) S 1 2 3 (b", []byte("1 (a"))
	f.Add("\n", []byte("(a)"+strings.Repeat(" 1", 20)))
	f.Add("x", []byte("1 (a) b) S 0 1 1 0"))
	f.Fuzz(func(t *testing.T, name string, foreign []byte) {
		if s, ok := ParseStat(foreign); ok && (s.Threads < 0 || s.Parent < 0) {
			t.Fatalf("%+v out of %q", s, foreign)
		}
		line := "7 (" + name + ") Z 3 7 5 0 -1 0 0 0 0 0 0 0 0 0 20 0 4 0 12345 0\n"
		if s, ok := ParseStat([]byte(line)); !ok || s != (Stat{Parent: 3, Session: 5, Threads: 4, Started: 12345, Dead: true}) {
			t.Errorf("parsed %q as %+v, %v", line, s, ok)
		}
	})
}
