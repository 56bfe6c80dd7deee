package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/oom/watch"
)

// finding is one thing that this machine allows or not.
type finding struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Is   string `json:"is"`
	// Lost says what is lost without it; empty where it is there.
	Lost string `json:"lost"`
}

func doctorCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine supports, and what is lost without the rest",
		Args:  cobra.NoArgs,
	}
	output := cli.OutputFlag(c, "text", "json")
	client := clientFlags(c) // the running one knows the API server and the container runtime
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := client.Check(); err != nil {
			return err
		}
		findings := append(examine(c.Context(), client), managerFindings(c.Context(), client)...)
		findings = append(findings, protectionFindings(c.Context(), client)...)
		findings = append(findings, runtimeFinding(c.Context(), client))
		findings = append(findings, apiFindings(c.Context(), client)...)
		findings = append(findings, kubeletFindings(c.Context(), client, "/proc", daemon.FindKubelet())...)
		if output.String() == "json" {
			return json.NewEncoder(c.OutOrStdout()).Encode(map[string][]finding{"findings": findings})
		}
		w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		for _, f := range findings {
			mark := "ok"
			if !f.OK {
				mark = "--"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", mark, f.Name, f.Is)
			if !f.OK {
				fmt.Fprintf(w, "\t\twithout it: %s\n", f.Lost)
			}
		}
		return w.Flush()
	}
	return c
}

// about is a finding, of which nothing is lost where it is ok.
func about(name, is string, ok bool, lost string) finding {
	if ok {
		lost = ""
	}
	return finding{name, ok, is, lost}
}

// tried is a finding of what works unless it is an error.
func tried(name string, err error, lost string) finding {
	return about(name, availability(err), err == nil, lost)
}

// examine looks at the machine and changes nothing.
func examine(ctx context.Context, client *serve.Client) []finding {
	findings := append([]finding{cgroupFinding("/proc/cgroups")}, releaseFindings()...)
	findings = append(findings, thresholdFinding(), tripwireFinding(), memoryReclaimFinding())
	findings = append(findings, stallFindings()...)
	findings = append(findings, consistencyFinding(osprocess.KernelRelease(), kernelMessages()))
	messages, err := os.Open(watch.Log)
	if err == nil {
		messages.Close()
	}
	findings = append(findings, tried("kernel log", err, "kernel OOM kills are found by the pods' counters: without the process, up to 10 s late, and none outside pods"))
	findings = append(findings, capabilityFindings(privileges(ctx, client))...)
	findings = append(findings, tried("realtime priority", realtime(), "the sensing thread waits for its turn like others: milliseconds on a busy machine"))
	is, kubelet := "none", daemon.FindKubelet()
	if kubelet.Found() {
		is = kubelet.String()
	}
	return append(findings, about("no other eviction manager", is, !kubelet.Found(), "native mode refuses to start; choose backstop, takeover or observe"))
}

// releaseFindings are what follows from the kernel's release.
func releaseFindings() (findings []finding) {
	for _, f := range []struct {
		name         string
		major, minor int // since
		lost         string
	}{
		{"pidfd", 5, 3, "pods cannot be ended: evictd needs Linux 5.3"},
		{"process_mrelease", 5, 15, "a killed process frees its memory at its own pace, which on a busy machine can be seconds"},
		{"cgroup.kill", 5, 14, "pods are killed process by process"},
	} {
		findings = append(findings, about(f.name, "kernel "+osprocess.KernelRelease(), osprocess.KernelIsAtLeast(f.major, f.minor), f.lost))
	}
	return findings
}

// stallFindings say whether the kernel notifies of memory stalls, and how soon.
func stallFindings() []finding {
	_, err := os.Stat("/proc/pressure/memory")
	shown := tried("pressure stall information", err, "the reclaimAware memory model goes by refaults alone, memory.stall is not measured, and stalls are not shown")
	if err != nil {
		return []finding{shown}
	}
	lost := "kernel notifications of memory stalls come up to 2 s late; polling decides"
	if stallNotice(2*time.Second) != nil {
		lost = "the kernel does not notify of memory stalls; polling decides"
	}
	groups := finding{Name: "stalls of pods", Lost: "memory.stall is that of the machine alone, and pods rank for it by what they read back"}
	if s, err := cgroup.Discover(""); err != nil {
		groups.Is = err.Error()
	} else {
		groups = about(groups.Name, "cgroup "+s.Version().String(), s.Version() == cgroup.V2, groups.Lost)
	}
	return []finding{shown, groups, tried("pressure triggers off the 2 s grid", stallNotice(500*time.Millisecond), lost)}
}

// privileges are those of the running evictd, and whose they are; this process's, where none runs or
// another PID namespace has it.
func privileges(ctx context.Context, client *serve.Client) (p daemon.Privileges, holder string) {
	if status, err := standing(ctx, client); err == nil {
		p, err = daemon.PrivilegesOf(strconv.Itoa(status.PID))
		if err == nil && p.Program == "evictd" {
			return p, fmt.Sprintf(" by evictd, process %d", status.PID)
		}
		holder = " by this command; evictd is in another PID namespace"
	}
	p, _ = daemon.PrivilegesOf("self")
	return p, holder
}

func capabilityFindings(p daemon.Privileges, holder string) (findings []finding) {
	for _, c := range []struct {
		name string
		bit  int
		lost string
	}{
		{"CAP_KILL", daemon.CapKill, "processes of other users cannot be ended"},
		{"CAP_DAC_OVERRIDE", daemon.CapDACOverride, "cgroup files of other users cannot be written"},
		{"CAP_SYS_RESOURCE", daemon.CapSysResource, "oom_score_adj cannot be lowered; scores stay as the runtime set them where they would have to fall"},
		{"CAP_SYS_PTRACE", daemon.CapSysPtrace, "deleted files that containers have open, and writable layers that the runtime does not measure, count for no pod"},
		{"CAP_SYS_NICE", daemon.CapSysNice, "evictd runs at the priority of other processes"},
		{"CAP_IPC_LOCK", daemon.CapIPCLock, "evictd's memory may be swapped and its program be read from disk again, unless RLIMIT_MEMLOCK allows it"},
	} {
		held := p.Capabilities.Has(c.bit)
		is := map[bool]string{true: "held", false: "not held"}[held] + holder
		if !held && c.bit == daemon.CapIPCLock && p.Locked {
			is, held = is+", whose memory is locked all the same", true
		}
		findings = append(findings, about(c.name, is, held, c.lost))
	}
	return findings
}

// standing is what the running daemon says of itself.
func standing(ctx context.Context, client *serve.Client) (status nodestatus.Status, err error) {
	body, err := client.Fetch(ctx, "/v1/status")
	if err == nil {
		err = serve.Decode(body, &status)
	}
	return status, err
}

// protectionFindings say whether the running daemon, if there is one, finds the cgroups of the pods, and which
// thresholds it cannot evaluate.
func protectionFindings(ctx context.Context, client *serve.Client) []finding {
	status, err := standing(ctx, client)
	if err != nil {
		return nil
	}
	findings := []finding{
		about("configuration in use", cmp.Or(status.ConfigurationRefused, "as it was given"), status.ConfigurationRefused == "", "evictd uses the configuration that it accepted before"),
		about("cgroups of the pods", cmp.Or(status.Unprotected, "found, or no pod is known"), status.Unprotected == "", "nothing is protected, and evictd is not ready"),
	}
	for _, s := range status.Signals {
		if s.Unmeasured != "" {
			findings = append(findings, finding{Name: "threshold of " + s.Name, Is: s.Unmeasured, Lost: "nothing is evicted for " + s.Name})
		}
	}
	return findings
}

// runtimeFinding is what the running daemon has found of the container runtime, or else what those
// behind the usual sockets answer now.
func runtimeFinding(ctx context.Context, client *serve.Client) finding {
	const name = "container runtime"
	lost := "pods come from manifests and the API server alone, soft victims are not stopped by their images' signals, writable layers are not measured and images not collected"
	status, err := standing(ctx, client)
	if err != nil {
		is, ok := askRuntimes(ctx, daemon.RuntimeEndpoint("").Sockets())
		return about(name, is, ok, lost)
	}
	r := status.Runtime
	switch {
	case r == nil:
		return finding{Name: name, Is: "evictd is configured to use none", Lost: lost}
	case !r.Connected:
		return finding{Name: name, Is: r.Error, Lost: lost}
	}
	is := fmt.Sprintf("%s %s at %s answers since %s", r.Name, r.Version, r.Endpoint, r.Since.Format(time.RFC3339))
	if len(r.Missing) > 0 {
		is += ", without " + strings.Join(r.Missing, ", ")
	}
	said := []string{is}
	for _, method := range slices.Sorted(maps.Keys(r.Failing)) {
		said = append(said, method+" fails: "+r.Failing[method])
	}
	return about(name, strings.Join(said, "; "), len(r.Failing) == 0, "what the failing calls would say is not known, or as old as their last answer; what the others say stays in use")
}

// askRuntimes has evictd-agent ask the runtimes behind the sockets for their versions. ok says that one has answered.
func askRuntimes(ctx context.Context, sockets []string) (is string, ok bool) {
	if len(sockets) == 0 {
		return "no socket of a container runtime found", false
	}
	self, err := os.Executable()
	if err != nil {
		return err.Error(), false
	}
	said, err := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), "evictd-agent"), append([]string{"ask"}, sockets...)...).Output()
	if err != nil {
		return fmt.Sprintf("%s: whether it answers is not known: %v", strings.Join(sockets, ", "), err), false
	}
	var answers []wire.RuntimeAnswer
	if err := json.Unmarshal(said, &answers); err != nil {
		return fmt.Sprintf("read the answer of evictd-agent: %v", err), false
	}
	var lines []string
	for _, a := range answers {
		if a.Error != "" {
			lines = append(lines, fmt.Sprintf("unix:%s does not: %s", a.Socket, a.Error))
			continue
		}
		ok = true
		lines = append(lines, fmt.Sprintf("%s %s at unix:%s answers", a.Name, a.Version, a.Socket))
	}
	return strings.Join(lines, "; "), ok
}

// apiFindings are what the running daemon has found of its API server: whether
// it answers, and what it does not let evictd do.
func apiFindings(ctx context.Context, client *serve.Client) []finding {
	const name = "API server"
	lost := "the cluster does not learn of pressure and evictions, and pods come from manifests alone"
	status, err := standing(ctx, client)
	switch {
	case err != nil:
		return []finding{{Name: name, Is: "no running evictd to ask: " + err.Error(), Lost: "whether it answers, and what it allows, is not known"}}
	case status.API == nil:
		return []finding{{Name: name, Is: "evictd was given none", Lost: lost}}
	case !status.API.Connected:
		return []finding{{Name: name, Is: status.API.Error, Lost: lost}}
	}
	findings := []finding{{Name: name, OK: true, Is: "answers since " + status.API.Since.Format(time.RFC3339)}}
	for _, what := range slices.Sorted(maps.Keys(status.API.Refused)) {
		findings = append(findings, finding{Name: "may write " + what, Is: status.API.Refused[what], Lost: cmp.Or(withoutRight[what], "it is left out")})
	}
	if status.API.Conflict != "" {
		findings = append(findings, finding{Name: "no other writer of the conditions", Is: status.API.Conflict, Lost: "conditions and taints are left to the other writer until evictd is restarted"})
	}
	return findings
}

// withoutRight says what is lost where the API server refuses something.
var withoutRight = map[string]string{
	"taints":       "conditions alone are written; the taint is left to the controller that turns conditions into taints, as the node lifecycle controller does with the built-in ones",
	"conditions":   "the cluster does not learn of pressure",
	"pod status":   "evicted pods are not shown as such, and a kubelet may restart their containers",
	"pod eviction": "disruption budgets are not respected; soft victims are evicted at their deadline",
	"events":       "decisions are in the log and the status document only",
}

func availability(err error) string {
	if err == nil {
		return "available"
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e.Error()
	}
	return err.Error()
}

// stallNotice tries a trigger with a window, which may need a privilege.
func stallNotice(window time.Duration) error {
	n, err := cgroup.NotifyStallAt("/proc/pressure/memory", cgroup.Some, window/10, window)
	if err == nil {
		n.Close()
	}
	return err
}

// realtime tries the priority of the sensing thread, in a thread that ends with it.
func realtime() error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		_, err := osprocess.Elevate()
		result <- err
	}()
	return <-result
}

// thresholdFinding tries to be notified of memory that crosses a threshold, one that
// no machine has. On v2 memory.high notifies.
func thresholdFinding() finding {
	const name = "memory thresholds of cgroups"
	lost := "polling sees a crossing up to 5 ms late"
	s, err := cgroup.Discover("")
	if err != nil {
		return finding{name, false, err.Error(), lost}
	}
	if s.Version() == cgroup.V2 {
		return about(name, "memory.high of cgroup v2, kernel "+osprocess.KernelRelease(), osprocess.KernelIsAtLeast(5, 9), lost)
	}
	top, err := s.Open("/")
	if err != nil {
		return finding{name, false, err.Error(), lost}
	}
	defer top.Close()
	n, err := top.NotifyUsage(1 << 60)
	if err != nil {
		return finding{name, false, availability(err), lost}
	}
	n.Close()
	return finding{Name: name, OK: true, Is: "the kernel notifies of a crossing"}
}

// tripwireFinding looks for a group's memory.high, its own: the top has none.
func tripwireFinding() finding {
	const name = "tripwire of memory.high"
	lost := "memoryHighTripwire does nothing"
	s, err := cgroup.Discover("")
	if err != nil {
		return finding{name, false, err.Error(), lost}
	}
	file, ok := s.MemoryHighFile(s.Self())
	if !ok {
		return finding{name, false, "cgroup v1 has none", lost}
	}
	if _, err := os.Stat(file); err != nil && s.Self() != "/" {
		return finding{name, false, availability(err), lost}
	}
	return finding{Name: name, OK: true, Is: "available, and used where memoryHighTripwire is set"}
}

// memoryReclaimFinding looks for a group's memory.reclaim, its own.
func memoryReclaimFinding() finding {
	const name = "memory.reclaim of pods"
	lost := "memoryReclaimBudget does nothing"
	s, err := cgroup.Discover("")
	if err != nil {
		return finding{name, false, err.Error(), lost}
	}
	file, ok := s.MemoryReclaimFile(s.Self())
	if !ok {
		return finding{name, false, "cgroup v1 has none", lost}
	}
	if _, err := os.Stat(file); err != nil {
		return finding{name, false, availability(err) + ": it needs Linux 5.19", lost}
	}
	return finding{Name: name, OK: true, Is: "available, and used where memoryReclaimBudget is set"}
}
