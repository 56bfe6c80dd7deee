package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/serve"
)

// managerFindings say what has started the running evictd, unless none runs or another PID namespace
// has it.
func managerFindings(ctx context.Context, client *serve.Client) []finding {
	status, err := standing(ctx, client)
	if err != nil {
		return nil
	}
	process := fmt.Sprint(status.PID)
	if p, err := daemon.PrivilegesOf(process); err != nil || p.Program != "evictd" {
		return nil
	}
	groups, err := os.ReadFile("/proc/" + process + "/cgroup")
	if err != nil {
		return nil
	}
	return []finding{managerFinding(string(groups))}
}

// managerFinding says it by the cgroups of evictd: evictd-install puts the one of a pod into /evictd.
func managerFinding(groups string) finding {
	const name = "service manager"
	is, lost := "evictd is of no service", "nothing starts evictd again when it ends; it has no watchdog and none of the restrictions of its unit"
	for line := range strings.Lines(groups) {
		switch path.Base(strings.TrimSpace(line)) {
		case "evictd.service":
			return finding{Name: name, OK: true, Is: "evictd is the unit evictd.service of systemd"}
		case "evictd":
			is = "evictd is a process of a pod of the DaemonSet (node.inPod)"
			lost = "evictd ends with its pod, for as long as the next one takes to start; it has no watchdog, none of the restrictions of its unit, no memory that the kernel spares, and no preference on disks"
		}
	}
	return about(name, is, false, lost)
}
