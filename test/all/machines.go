package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// machines are kernels of their own in which tests run: the tests of a machine are subtests of a test.
var machines = []struct{ name, test string }{
	{"cgroup v2 in a user-mode kernel", "TestOnCgroupV2/"},
	{"cgroup v2 in the virtual machine", "TestVirtualMachine/v2/"},
	{"cgroup v1 in the virtual machine", "TestVirtualMachine/v1/"},
}

// writeMachines lists the tests that passed in each machine, by name, and those of them that passed on this host.
func writeMachines(out io.Writer, passed map[string]bool, host string) {
	inMachines := map[string]bool{}
	list := func(where string, tests map[string]bool) {
		if len(tests) > 0 {
			fmt.Fprintf(out, "\npassed with %s, %d tests: %s\n", where, len(tests), strings.Join(slices.Sorted(maps.Keys(tests)), " "))
		}
	}
	for _, m := range machines {
		tests := map[string]bool{}
		for path, yes := range passed {
			if name, is := strings.CutPrefix(path, m.test); is && yes && !strings.Contains(name, "/") {
				tests[name], inMachines[name] = true, true
			}
		}
		list(m.name, tests)
	}
	maps.DeleteFunc(inMachines, func(name string, _ bool) bool { return !passed[name] })
	list(host+" on this host", inMachines)
}

// hierarchy is the version of cgroups that this host has.
func hierarchy() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "cgroup v2"
	}
	return "cgroup v1"
}
