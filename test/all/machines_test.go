package main

import (
	"strings"
	"testing"
)

func TestTheTestsOfEachMachineAreListedByName(t *testing.T) {
	passed := map[string]bool{
		"TestA": true, "TestB": false, "TestElsewhere": true, "TestOnCgroupV2": true,
		"TestOnCgroupV2/TestA": true, "TestOnCgroupV2/TestA/of": true, "TestOnCgroupV2/TestB": true, "TestVirtualMachine/v1/TestC": true,
	}
	const want = `
passed with cgroup v2 in a user-mode kernel, 2 tests: TestA TestB

passed with cgroup v1 in the virtual machine, 1 tests: TestC

passed with cgroup v1 on this host, 1 tests: TestA
`
	var out strings.Builder
	writeMachines(&out, passed, "cgroup v1")
	if out.String() != want {
		t.Errorf("got %s", out.String())
	}
}
