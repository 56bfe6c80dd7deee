package cgroup

import (
	"os"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// rule: M.74
func TestAWalkOfNestedGroupsIsBounded(t *testing.T) {
	s, group := realGroup(t, bounded())
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, s.Create(group+"/"+name, bounded()))
	}
	g := open(t, s, group)
	for most, cut := range map[int]bool{0: false, 4: false, 3: true, 1: true} { // the group itself, and three below
		w := tally{most: most}
		if err := w.walk(g.dirs[memory], "cgroup.procs\x00", 0); err != nil || w.cut != cut {
			t.Errorf("most %d: cut %v, %v", most, w.cut, err)
		}
	}
}

// TestAKilledProcessThatIsFrozenBelowDies freezes as a container runtime does, in the container's
// own group.
func TestAKilledProcessThatIsFrozenBelowDies(t *testing.T) {
	s, group := realGroup(t, bounded())
	sub := group + "/container"
	require.NoError(t, s.Create(sub, bounded()))
	g := open(t, s, group)
	m := join(t, s, sub)
	frozen, ok := s.FreezeSetting(sub)
	if !ok {
		t.Skip("skipped: needs the freezer")
	}
	require.NoError(t, os.WriteFile(frozen.File, []byte(frozen.Value), 0))
	below := open(t, s, sub)
	t.Cleanup(func() { below.Thaw() })
	require.NoError(t, m.Process.Kill())
	require.NoError(t, g.Thaw())
	if state, err := m.Process.Wait(); err != nil || state.Success() {
		t.Errorf("%v, %v", state, err)
	}
}
