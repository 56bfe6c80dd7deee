package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evictd/evictd/test/controlplane/scheduler"
)

// cases are workloads of Kubernetes' scheduler_perf, directory/case/workload: of each case a
// workload that two cores can carry. Cases that only have larger ones, or ones that end
// before scheduler_perf has a throughput, are missing.
var cases = []string{
	"misc/SchedulingBasic/500Nodes",
	"misc/SchedulingWithMixedChurn/1000Nodes",
	"misc/SchedulingDeletedPodsWithFinalizers/1000Node_1000DeletingPods",
	"misc/SchedulingWithExtendedResource/500pods_500nodes_DRAExtendedResourceEnabled",
	"affinity/SchedulingPodAntiAffinity/500Nodes",
	"affinity/SchedulingPodMatchingAntiAffinity/500Nodes",
	"affinity/SchedulingPodAffinity/500Nodes",
	"affinity/SchedulingPreferredPodAffinity/500Nodes",
	"affinity/SchedulingPreferredPodAntiAffinity/500Nodes",
	"affinity/SchedulingNodeAffinity/500Nodes",
	"affinity/MixedSchedulingBasePod/500Nodes",
	"affinity/SchedulingRequiredPodAntiAffinityWithNSSelector/500Nodes",
	"affinity/SchedulingRequiredPodAffinityWithNSSelector/500Nodes",
	"topology_spreading/TopologySpreading/500Nodes",
	"topology_spreading/PreferredTopologySpreading/500Nodes",
	"topology_spreading/DefaultTopologySpreading/500Nodes",
	"topology_spreading/SchedulingWithNodeInclusionPolicy/500Nodes",
	"volumes/SchedulingSecrets/500Nodes",
	"volumes/SchedulingInTreePVs/500Nodes",
	"volumes/SchedulingMigratedInTreePVs/500Nodes",
	"volumes/SchedulingCSIPVs/500Nodes",
	"volumes/PreemptionPVs/1000Nodes",
	"event_handling/EventHandlingPodDelete/50Nodes_500Pods",
	"event_handling/EventHandlingPodUpdate/1Node_1000Pods",
	"event_handling/EventHandlingPodAdd/1000Pods",
	"event_handling/EventHandlingNodeAdd/100Nodes_1000Pods",
	"event_handling/EventHandlingNodeUpdate/100Nodes_1000Pods",
	"default_preemption/PreemptionBasic/1000Nodes",
	"default_preemption/PreemptionAsync/500Nodes",
	"default_preemption/Unschedulable/500Nodes/10Init/1kPods",
	"dra/SchedulingWithResourceClaimTemplate/2000pods_200nodes",
	"dra/SchedulingWithResourceClaimTemplate/empty_500nodes",
	"dra/SchedulingWithResourceClaimTemplate/half_500nodes",
	"dra/SchedulingWithResourceClaimTemplate/full_500nodes",
	"dra/SchedulingWithResourceClaim/2000pods_200nodes",
	"dra/consumablecapacity/ConsumableCapacity/half_100nodes",
	"dra/partitionabledevices/Partitionable/half_100nodes",
	"dra/partitionabledevices/PartitionableBacktracking/half_100nodes",
	"dra/extendedresource/ExtendedResource/Explicit_25classes_2000pods_200nodes",
	"dra/listattributes/SchedulingWithResourceClaimTemplateListAttributes/empty_500nodes",
}

// perf measures cases by each scheduler in turn. Both run as programs beside
// scheduler_perf, which counts the pods that become bound each second.
type perf struct {
	programs map[string]string
	dir      string
	sources  string // of the module k8s.io/kubernetes
	rounds   int
}

// perfLimit bounds a case; scheduler_perf itself gives up after 30 minutes.
const perfLimit = 10 * time.Minute

// run writes a row for each case that the expression matches. The table says where
// scheduler_perf does not succeed; the errors say why.
func (p perf) run(ctx context.Context, out io.Writer, wanted *regexp.Regexp) error {
	var faults []error
	fmt.Fprintf(out, "\n| scheduler_perf | %s, pods/s | %s, pods/s | load |\n|---|--:|--:|--:|\n", scheduler.Kube, scheduler.Evictd)
	for _, name := range cases {
		if !wanted.MatchString(name) {
			continue
		}
		rates := map[string][]string{}
		for range p.rounds {
			for _, by := range []string{scheduler.Kube, scheduler.Evictd} {
				rate, err := p.measure(ctx, name, by)
				if err != nil {
					faults = append(faults, fmt.Errorf("%s by %s: %w", name, by, err))
					rate = "failed"
				}
				if ctx.Err() != nil {
					return errors.Join(faults...)
				}
				rates[by] = append(rates[by], rate)
			}
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", name, strings.Join(rates[scheduler.Kube], ", "), strings.Join(rates[scheduler.Evictd], ", "), load())
	}
	return errors.Join(faults...)
}

// measure returns the average throughput of a case.
func (p perf) measure(ctx context.Context, name, by string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, perfLimit)
	defer cancel()
	dir, err := os.MkdirTemp(p.dir, "perf-")
	if err != nil {
		return "", err
	}
	command, _, err := scheduler.Command(p.programs[by], "KUBECONFIG", dir)
	if err != nil {
		return "", err
	}
	benchmark := exec.CommandContext(ctx, p.programs["scheduler_perf"], "-test.run=^$", "-test.bench=.", "-test.benchtime=1x", "-data-items-dir="+dir)
	benchmark.Dir = dir
	// etcd and the scheduler are of its group, and end with it.
	benchmark.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	benchmark.Cancel = func() error { return syscall.Kill(-benchmark.Process.Pid, syscall.SIGKILL) }
	benchmark.Env = append(os.Environ(), "PATH="+filepath.Dir(p.programs["etcd"])+":"+os.Getenv("PATH"),
		"SCHEDULER_PERF_SOURCES="+p.sources, "SCHEDULER_PERF_CASE="+name, "SCHEDULER_PERF_SCHEDULER="+strings.Join(command.Args, " "))
	text, err := benchmark.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return "", fmt.Errorf("%w\n%s", err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return throughput(text)
}

// throughput reads "140.4 SchedulingThroughput/Average" from a line of results.
func throughput(text []byte) (string, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if at := slices.Index(fields, "SchedulingThroughput/Average"); at > 0 {
			return fields[at-1], nil
		}
	}
	return "", fmt.Errorf("scheduler_perf reports no throughput")
}

// load is how many processes have wanted to run in the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// sources is the directory of k8s.io/kubernetes in the module cache.
func sources(ctx context.Context, root string) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	list.Dir = filepath.Join(root, "test/controlplane/parts")
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", list, err)
	}
	return strings.TrimSpace(string(out)), nil
}
