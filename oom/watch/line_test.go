package watch

import (
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// rule: 8.17
func TestTheKernelsChoiceIsReadWhateverTheVictimIsNamed(t *testing.T) {
	const head = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset="
	for name, c := range map[string]struct {
		said string
		want summary
	}{
		"a container": {head + "c1,mems_allowed=0,oom_memcg=/kubepods/podx,task_memcg=/kubepods/podx/c1,task=app,pid=12,uid=0",
			summary{12, "/kubepods/podx/c1", "/kubepods/podx"}},
		"of the machine": {"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=c1,mems_allowed=0-1,global_oom,task_memcg=/kubepods/podx/c1,task=app,pid=12,uid=1000",
			summary{12, "/kubepods/podx/c1", ""}},
		"of the machine, in no group": {"oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=app,pid=12,uid=0",
			summary{12, "/", ""}},
		"a process named like the end": {head + "c1,mems_allowed=0,oom_memcg=/kubepods/podx,task_memcg=/kubepods/podx/c1,task=a,pid=1,uid=0,pid=12,uid=0",
			summary{12, "/kubepods/podx/c1", "/kubepods/podx"}},
		"a group named like another pod's": {head + "podother,mems_allowed=0,oom_memcg=/kubepods/podx/z,task_memcg=/kubepods/podother,task_memcg=/kubepods/podx/z,task_memcg=/kubepods/podother,task=app,pid=12,uid=0",
			summary{12, "/kubepods/podx/z", "/kubepods/podx/z"}},
		"a group below, named like another pod's": {head + "z,mems_allowed=0,oom_memcg=/kubepods,task_memcg=/kubepods/podx/z,oom_memcg=/,task_memcg=/kubepods/podother,task=app,pid=12,uid=0",
			summary{12, "/kubepods/podx/z,oom_memcg=/,task_memcg=/kubepods/podother", "/kubepods"}},
		"a cpuset named like the rest": {head + "x,global_oom,task_memcg=,oom_memcg=,mems_allowed=0,oom_memcg=/kubepods/podx,task_memcg=/kubepods/podx/c,task=app,pid=12,uid=0",
			summary{12, "/kubepods/podx/c", "/kubepods/podx"}},
		"what does not print": {head + `c,mems_allowed=0,oom_memcg=/kubepods\x5cx2d\x1b,task_memcg=/kubepods\x5cx2d\x1b/c,task=\x1b[2J,pid=12,uid=0`,
			summary{12, `/kubepods\x2d` + "\x1b/c", `/kubepods\x2d` + "\x1b"}},
	} {
		if got, ok := parseSummary(c.said); !ok || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, ok, c.want)
		}
	}
	for _, said := range []string{"", "oom-kill:", "oom-kill:constraint=C,task=a,pid=1,uid=0", "oom-kill:,oom_memcg=/a,task=a,pid=1,uid=0", "oom-kill:,global_oom,task_memcg=/a,task=a,pid=-1,uid=0"} {
		if s, ok := parseSummary(said); ok {
			t.Errorf("%q: %+v", said, s)
		}
	}
}

// rule: 8.18
func TestAKillIsReadWhateverTheVictimIsNamed(t *testing.T) {
	const figures = " total-vm:2276368kB, anon-rss:31104kB, file-rss:2168kB, shmem-rss:4kB, UID:0 pgtables:156kB oom_score_adj:938"
	resident := stats.Known((31104 + 2168 + 4) << 10)
	for said, want := range map[string]killed{
		"Memory cgroup out of memory: Killed process 6924 (app)" + figures:                         {6924, "app", resident, false},
		"Out of memory: Killed process 6924 (app)" + figures:                                       {6924, "app", resident, true},
		"Out of memory (oom_kill_allocating_task): Killed process 6924 (app)" + figures:            {6924, "app", resident, true},
		"Memory cgroup out of memory: Killed process 6924 () total-vm:1kB)" + figures:              {6924, ") total-vm:1kB", resident, false},
		"Memory cgroup out of memory: Killed process 6924 (: Killed process)" + figures:            {6924, ": Killed process", resident, false},
		`Memory cgroup out of memory: Killed process 6924 (\x0a\x1b[31m) total-vm:1kB, anon-rss:?`: {6924, `\x0a\x1b[31m`, stats.Amount{}, false},
	} {
		if got, ok := parseKilled(said); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", said, got, ok, want)
		}
	}
	for _, said := range []string{"", "Killed process 1 (a) total-vm:1kB", "x: Killed process 0 (a) total-vm:1kB", "x: Killed process 1 (a)", "Memory cgroup out of memory: OOM victim 1 (a) is already exiting. Skip killing the task"} {
		if k, ok := parseKilled(said); ok {
			t.Errorf("%q: %+v", said, k)
		}
	}
}

func TestOnlyTheKernelIsBelieved(t *testing.T) {
	for line, want := range map[string]struct {
		said         string
		more, kernel bool
	}{
		"4,6648,28375580220,-;said;more": {"said;more", false, true},
		"6,1,2,c,caller=T1;said":         {"said", true, true},
		"12,1,2,-;oom-kill:":             {"oom-kill:", false, false}, // a process, as itself
		" SUBSYSTEM=pci;":                {"", false, false},
		"4,1,2;said":                     {"", false, false},
		"-1,1,2,-;said":                  {"said", false, false},
	} {
		said, more, kernel := text(line)
		if said != want.said || more != want.more || kernel != want.kernel {
			t.Errorf("%q: got %q, %v, %v", line, said, more, kernel)
		}
	}
}

// The seeds are records of Linux 6.18 as /dev/kmsg gave them.
func FuzzLine(f *testing.F) {
	captured := require.ReadFile(f, "testdata/kmsg-6.18")
	for line := range strings.Lines(string(captured)) {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Fuzz(func(t *testing.T, line string) {
		said, _, _ := text(line)
		if s, ok := parseSummary(said); ok && (s.pid <= 0 || s.cgroup == "" || s.limit != "" && !contains(s.limit, s.cgroup)) {
			t.Errorf("%+v", s)
		}
		if k, ok := parseKilled(said); ok && (k.pid <= 0 || k.memory.Or(0) < 0) {
			t.Errorf("%+v", k)
		}
	})
}
