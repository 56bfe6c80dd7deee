package node_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/oom"
	"github.com/evictd/evictd/test/harness"
	"github.com/evictd/evictd/test/vm/machine"
)

// guard is a program that kills a process that uses up the machine's memory, as its
// package installs it.
type guard struct {
	name, unit string
	files      map[string]string // its configuration
	swap       bool
}

// line is the available memory, MiB, at which guards act that can be configured.
const line = 200

// podsSlice is the pods' cgroup as a unit of systemd's, for systemd-oomd.
const podsSlice = "kubepods.slice"

// oomd takes the shortest time that systemd-oomd allows, and a limit that is
// reached early.
func oomd(name string, swap bool, conf, slice string) guard {
	return guard{name, "systemd-oomd.service", map[string]string{
		"/run/systemd/oomd.conf.d/soon.conf": "[OOM]\nDefaultMemoryPressureDurationSec=1s\n" + conf,
		"/run/systemd/system/" + podsSlice:   "[Slice]\nManagedOOMMemoryPressure=kill\nManagedOOMMemoryPressureLimit=5%\n" + slice,
	}, swap}
}

var guards = []guard{
	{name: "evictd", unit: machine.Service},
	{name: "earlyoom", unit: "earlyoom.service", files: map[string]string{
		"/etc/default/earlyoom": fmt.Sprintf("EARLYOOM_ARGS=\"-r 0 -M %d,%d\"\n", line<<10, line<<9),
	}},
	oomd("systemd-oomd", false, "", ""),
	oomd("systemd-oomd, swap", true, "SwapUsedLimit=10%\n", "ManagedOOMSwap=kill\n"),
	{name: "the kernel"},
}

// bombs are pods of which the first one grows until it is ended; the others are
// within their requests, or of a higher priority.
var bombs = []struct {
	name string
	rate int // MiB a second; 0 is as fast as it goes
	pods []holder
}{
	{"a leak beside pods within their requests", 50, []holder{
		{"leaker", sandbox.Spec{Request: "16Mi"}, 16},
		{"within", sandbox.Spec{Request: "256Mi"}, 200},
		{"guaranteed", sandbox.Spec{Request: "96Mi", Limit: "96Mi"}, 80},
	}},
	{"as fast as it goes", 0, []holder{
		{"bomb", sandbox.Spec{}, 16},
		{"within", sandbox.Spec{Request: "256Mi"}, 200},
		{"guaranteed", sandbox.Spec{Request: "96Mi", Limit: "96Mi"}, 80},
	}},
	{"a leak beside a bigger pod of a higher priority", 50, []holder{
		{"leaker", sandbox.Spec{}, 16},
		{"important", sandbox.Spec{Priority: 1000}, 400},
	}},
}

type holder struct {
	name string
	sandbox.Spec
	hold int // MiB
}

// TestBesidePeers judges nothing: each line that begins with | is one run.
func TestBesidePeers(t *testing.T) {
	runs := campaign.Count(t, "EVICTD_ROUNDS", 1, 1)
	for _, g := range guards {
		for _, b := range bombs[:campaign.Size(len(bombs), 1)] {
			for range runs {
				n := newMachine(t)
				guardBy(n, g)
				r := measure(n, g, b.pods, b.rate)
				fmt.Printf("| %s | %s | %s |\n", g.name, b.name, r)
				unguard(n, g)
			}
		}
	}
}

// guardBy starts the guard alone.
func guardBy(n *harness.Node, g guard) {
	n.T.Helper()
	for file, text := range g.files {
		require.NoError(n.T, errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)))
	}
	if g.swap {
		mustRun(n.T, "fallocate", "--length=256M", "/swap")
		mustRun(n.T, "mkswap", "--quiet", "/swap")
		mustRun(n.T, "swapon", "/swap")
	}
	configure(n, fmt.Sprintf("podsCgroup: %s\nmemoryModel: available\nevictionHard: {memory.available: %dMi}", podsSlice, line))
	machine.Systemctl(n.T, "daemon-reload")
	machine.Systemctl(n.T, "stop", machine.Service)
	machine.Systemctl(n.T, "start", podsSlice)
	if g.unit != "" {
		machine.Systemctl(n.T, "start", g.unit)
	}
}

func unguard(n *harness.Node, g guard) {
	n.T.Helper()
	if g.unit != "" {
		machine.Systemctl(n.T, "stop", g.unit)
	}
	machine.Systemctl(n.T, "stop", podsSlice)
	if g.swap {
		mustRun(n.T, "swapoff", "/swap")
	}
	for file := range g.files {
		_ = os.Remove(file)
	}
}

// run is what became of a bomb.
type run struct {
	took    time.Duration // from the line to the end of the pod that grows
	least   int           // MiB that were available
	dead    []string      // in the order of their ends
	kernels int           // processes that the kernel killed
}

func (r run) String() string {
	return fmt.Sprintf("%.2f | %d | %s | %d", r.took.Seconds(), r.least, strings.Join(r.dead, ", "), r.kernels)
}

// measure runs the pods, each with the score that the kubelet gives it, lets the
// first one grow, and sees which pods die until that one has, or for a minute.
func measure(n *harness.Node, g guard, specs []holder, rate int) run {
	n.T.Helper()
	parent := cgroup.PodsAt("/" + podsSlice)
	var pods []*harness.Pod
	for _, h := range specs {
		m := n.Manifest(h.name, h.Spec)
		p := n.StartIn(m, parent.Pod(string(m.UID), podspec.QOSClass(m)), nil)
		n.Write(m)
		score := oom.Scores(m, int64(meminfo(n.T, "MemTotal")*harness.MiB))[0].ScoreAdj
		require.NoError(n.T, os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID()), []byte(strconv.Itoa(score)), 0o644))
		p.Do("hold %dMi", h.hold)
		pods = append(pods, p)
	}
	if g.unit == machine.Service {
		d := &harness.Evictd{Process: harness.At(n.T, machine.StatusSocket)}
		d.AwaitPods(memorySignal, pods...)
	}
	r, kills := run{least: line}, kernelKills(n.T)
	pods[0].Send("leak %dMi 768Mi", rate)
	var crossed time.Time
	tick := time.Tick(2 * time.Millisecond)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick {
		available := meminfo(n.T, "MemAvailable")
		if crossed.IsZero() && available < line {
			crossed = time.Now()
		}
		r.least = min(r.least, available)
		for _, p := range pods {
			if !p.Runs() && !slices.Contains(r.dead, p.Name) {
				r.dead = append(r.dead, p.Name)
			}
		}
		if !pods[0].Runs() {
			break
		}
	}
	if !crossed.IsZero() {
		r.took = time.Since(crossed)
	}
	r.kernels = kernelKills(n.T) - kills
	for _, p := range pods {
		p.End()
	}
	return r
}

// meminfo is a figure of the machine's, MiB.
func meminfo(t testing.TB, key string) int {
	t.Helper()
	for line := range strings.Lines(content(t, "/proc/meminfo")) {
		if value, is := strings.CutPrefix(line, key+":"); is {
			kib, err := strconv.Atoi(strings.Fields(value)[0])
			require.NoError(t, err)
			return kib >> 10
		}
	}
	t.Fatal("/proc/meminfo has no", key)
	return 0
}
