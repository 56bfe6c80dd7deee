package cgroup

import (
	"errors"
	"os"
	"path"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// rule: M.129
func TestTheProtectionOfAGroup(t *testing.T) {
	s, group := realGroup(t, bounded())
	dir := s.dir(memory, group)
	read := func() Protection {
		t.Helper()
		p, err := s.Protection(group)
		require.NoError(t, err)
		return p
	}
	before := read()
	if before.ID == 0 || before.Low != 0 || before.Omit || before.Avoid {
		t.Errorf("of a new group: %+v", before)
	}
	if s.Version() == V2 {
		require.NoError(t, os.WriteFile(path.Join(dir, "memory.low"), []byte("1048576"), 0o644))
		if low := read().Low; low != 1<<20 {
			t.Errorf("memory.low of 1 MiB is read as %d", low)
		}
	}
	if _, err := s.Protection(path.Join(group, "none")); !errors.Is(err, ErrGone) {
		t.Errorf("of no group: %v", err)
	}
	if err := unix.Setxattr(dir, oomdAvoid, []byte("1"), 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("skipped: this kernel has no extended attributes of users for cgroups")
	} else {
		require.NoError(t, err)
	}
	if p := read(); !p.Avoid || p.Omit || p.ID != before.ID {
		t.Errorf("with %s: %+v", oomdAvoid, p)
	}
	require.NoError(t, unix.Setxattr(dir, oomdOmit, []byte("true"), 0))
	if p := read(); p.Avoid || !p.Omit {
		t.Errorf("with both: %+v", p)
	}
	require.NoError(t, unix.Setxattr(dir, oomdOmit, []byte("0"), 0))
	if p := read(); !p.Avoid || p.Omit {
		t.Errorf("with %s of 0: %+v", oomdOmit, p)
	}
	require.NoError(t, os.Chown(dir, 65534, -1))
	if p := read(); p.Avoid || p.Omit {
		t.Errorf("of a group of another user: %+v", p)
	}
}
