package main

import (
	"strings"
	"testing"
)

func TestTheKernelsListOfControllersSaysWhyMemoryIsNotMeasured(t *testing.T) {
	const title = "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t40\t1\n"
	for list, want := range map[string]string{
		title:                             "built without it (CONFIG_MEMCG)",
		title + "memory\t0\t60\t0\n":      "cgroup_enable=memory",
		title + "memory\t0\t1\t1\n":       "no hierarchy is mounted with it",
		title + "memory\t7\tgarbage\n":    "built without it",
		title + "memory_other\t7\t1\t1\n": "built without it",
		"":                                "built without it",
	} {
		if got := memoryController(list); !strings.Contains(got, want) {
			t.Errorf("%q: %s; want %q", list, got, want)
		}
	}
}

func TestKernelsThatLoseCountOfStalledTasksAreNamed(t *testing.T) {
	for _, c := range []struct {
		release, messages string
		consistent        bool
	}{
		{"6.12.9-amd64", "", false},
		{"6.12.0", "", false},
		{"6.12-rc7", "", false},
		{"6.12.10", "", true},
		{"6.1.0-41-amd64", "", true},
		{"6.13.0", "", true},
		{"unknown", "", true},
		{"6.13.0", "4,1,1,-;psi: inconsistent task state! task=1:a cpu=0 psi_flags=4 clear=1 set=0\n", false},
	} {
		if f := consistencyFinding(c.release, c.messages); f.OK != c.consistent || !strings.Contains(f.Is, c.release) {
			t.Errorf("%+v: %+v", c, f)
		}
	}
}
