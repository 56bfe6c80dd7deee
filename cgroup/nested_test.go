package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
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
		if err := w.walk(g.dirs[memory], "cgroup.procs\x00"); err != nil || w.cut != cut {
			t.Errorf("most %d: cut %v, %v", most, w.cut, err)
		}
	}
}

// TestAProcessIsFoundHoweverDeepAndBesideHoweverManyGroups nests groups as a container with a cgroup of its own may.
func TestAProcessIsFoundHoweverDeepAndBesideHoweverManyGroups(t *testing.T) {
	s, top := realGroup(t, bounded())
	deep := top + strings.Repeat("/x", 70)
	require.NoError(t, s.Create(deep, bounded()))
	for i := range maxGroups {
		require.NoError(t, s.Create(fmt.Sprint(top, "/x/x/", i), bounded()))
	}
	g := open(t, s, top)
	m := join(t, s, deep)
	pids, err := g.AppendProcesses(nil)
	if want := []int{m.Process.Pid}; err != nil || !slices.Equal(pids, want) {
		t.Errorf("processes %v, %v, expected %v", pids, err, want)
	}
	if populated, err := g.Populated(); err != nil || !populated {
		t.Errorf("populated %v, %v", populated, err)
	}
	n, err := g.Processes() // of its tasks
	if threads, err1 := g.Threads(); err != nil || err1 != nil || n != threads {
		t.Errorf("%v processes, %v; %v threads, %v", n, err, threads, err1)
	}
	m.end()
	if populated, err := g.Populated(); err != nil || populated {
		t.Errorf("populated %v, %v after the end", populated, err)
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

func TestQuotasAreLiftedHoweverDeepTheyAre(t *testing.T) {
	s, group := realGroup(t, bounded())
	if s.of[cpu] == nil {
		t.Skip("skipped: needs the cpu controller")
	}
	g := open(t, s, group)
	require.NoError(t, g.LiftQuotas())
	var files []string
	for _, below := range []string{"/a", "/a/b", "/a/b/c"} {
		require.NoError(t, s.Create(group+below, Limits{CPUQuota: stats.Known(5000)}))
		files = append(files, filepath.Join(s.dir(cpu, group+below), noQuota[s.version].File))
	}
	require.NoError(t, g.LiftQuotas())
	for _, file := range files {
		if text := string(require.ReadFile(t, file)); !strings.HasPrefix(text, noQuota[s.version].Value) {
			t.Errorf("%s is %q", file, text)
		}
	}
}
