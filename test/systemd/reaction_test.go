package systemd_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/workload"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

// protecting is a configuration that evicts.
const protecting = `apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
mode: native
cgroupRoot: /node
podManifests: /srv/pods
evictionHard: {memory.available: 64Mi}
evictionPressureTransitionPeriod: 1s
housekeepingInterval: 1s
`

// bombsOfAnInstallation are the bombs between two installations.
var bombsOfAnInstallation = campaign.Size(5, 1)

// TestCampaignReactionOfADeployment judges nothing: its lines that begin with | are a table of how soon after
// the crossing of the threshold evictd sends the first signal to a pod that takes 400 MiB/s, as
// the unit that a pod of the DaemonSet has installed, and as a process of that pod. Both are installed in turn,
// EVICTD_ROUNDS times.
func TestCampaignReactionOfADeployment(t *testing.T) {
	campaign.Only(t)
	rounds := campaign.Count(t, "EVICTD_ROUNDS", 4, 1)
	p := &pod{boot(t, "")}
	p.prepare()
	p.makeOtherHost()
	p.do("mkdir", "-p", "/srv/pods", p.memoryGroup("node/kubepods"))
	defer func() {
		if t.Failed() {
			t.Logf("journal:\n%s", p.do("journalctl", "--no-pager", "--quiet", "--lines=60"))
		}
	}()
	p.limitNode()
	p.give("evictd.yaml", protecting)
	self := require.ReadFile(t, "/proc/self/exe")
	require.NoError(t, os.WriteFile(filepath.Join(p.root, "srv/workload"), self, 0o755))
	kinds := []struct {
		name, root string
		more       []string
	}{{"the unit of the host", "/", nil}, {"a process of the pod", host, []string{"--in-pod"}}}
	after := make([][]time.Duration, len(kinds))
	for round := range rounds {
		for i, kind := range kinds {
			p.do("rm", "-f", podDir+"/state")
			p.do(append([]string{"systemd-run", "--quiet", "--unit=" + podUnit}, append(runningOn(kind.root), kind.more...)...)...)
			p.awaitStarted()
			e := &harness.Evictd{Process: harness.At(t, filepath.Join(p.root, kind.root, "run/evictd/status.sock"))}
			for bomb := range bombsOfAnInstallation {
				after[i] = append(after[i], p.explode(e, kind.root, bomb))
			}
			p.do("systemctl", "stop", podUnit)
			p.do(command("uninstall", "--root="+kind.root)...)
			t.Logf("round %d, %s: %v", round, kind.name, after[i][len(after[i])-bombsOfAnInstallation:])
		}
	}
	fmt.Println("| evictd as | bombs | crossing to first signal, ms: median | p90 | maximum |\n|---|---:|---:|---:|---:|")
	for i, kind := range kinds {
		slices.Sort(after[i])
		n, ms := len(after[i]), func(d time.Duration) float64 { return d.Seconds() * 1000 }
		fmt.Printf("| %s | %d | %.2f | %.2f | %.2f |\n", kind.name, n, ms(after[i][n/2]), ms(after[i][n*9/10]), ms(after[i][n-1]))
	}
}

// makeOtherHost makes the root directory of a host without systemd.
func (p *pod) makeOtherHost() {
	p.Helper()
	p.do("sh", "-c", "mkdir "+host+" && mount --rbind / "+host+" && mount --make-rslave "+host+" && mount -t tmpfs tmpfs "+host+"/run")
}

// limitNode bounds the cgroup that is taken for the node.
func (m *machine) limitNode() {
	m.Helper()
	limit := m.memoryGroup("node/memory.limit_in_bytes")
	if _, err := os.Stat(m.root + m.memoryGroup("memory.limit_in_bytes")); err != nil {
		limit = m.memoryGroup("node/memory.max")
	}
	m.write(limit, strconv.Itoa(nodeMemory))
}

// explode has a pod take memory until evictd ends it, and returns how long after the crossing the
// first signal was sent.
func (p *pod) explode(e *harness.Evictd, root string, number int) time.Duration {
	p.Helper()
	name, stamps := fmt.Sprint("bomb", number), "/srv/stamps"
	file := filepath.Join("/srv/pods", name+".yaml")
	p.write(file, fmt.Sprintf(manifest, name, number))
	group := p.memoryGroup("node/kubepods/" + name)
	c := p.inside(p.Context(), "sh", "-c", fmt.Sprintf("mkdir -p %[1]s && echo $$ >%[1]s/cgroup.procs && exec /srv/workload", group))
	c.Env = append(os.Environ(), workload.Variable+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	orders, err := c.StdinPipe()
	require.NoError(p, err)
	answers, err := c.StdoutPipe()
	require.NoError(p, err)
	require.NoError(p, c.Start())
	lines := bufio.NewReader(answers)
	for _, order := range []string{"stamps " + stamps, "hold 1Mi"} {
		_, err = io.WriteString(orders, order+"\n")
		require.NoError(p, err)
		if answer, err := lines.ReadString('\n'); err != nil || answer != "ok\n" {
			p.Fatalf("%s: %q, %v", order, answer, err)
		}
	}
	of := &metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", number))}
	const signal, threshold = "memory.available", 64 << 20
	// The totals of cgroup v1 are up to two seconds old.
	const settled, slack = 3 * time.Second, 256 << 10
	var used int64
	var since time.Time
	e.Await("the node to settle with "+name, func(s *nodestatus.Status) bool {
		available, err := resource.ParseQuantity(s.MemoryAvailable["workingSet"])
		if now := nodeMemory - available.Value(); err != nil || max(now-used, used-now) > slack {
			used, since = now, s.Time.Time
		}
		return s.Time.Sub(since) >= settled && harness.Measured(s, signal, of.UID)
	})
	_, err = io.WriteString(orders, "leak 400Mi 240Mi\n")
	require.NoError(p, err)
	eviction := e.AwaitEviction(of, harness.Gone)
	_, _ = io.Copy(io.Discard, lines) // until it has ended
	_ = c.Wait()                      // which says that it was killed
	touched, err := workload.ReadStamps(filepath.Join(p.root, stamps))
	require.NoError(p, err)
	// Of what it holds. Its page tables count, too, so that it may be ended just before.
	crossing := min(int(nodeMemory-threshold-used+1<<20)/workload.StampEvery, len(touched)-1)
	p.do("rm", file, stamps)
	e.Await("its end", func(s *nodestatus.Status) bool {
		return !slices.ContainsFunc(s.Conditions, func(c nodestatus.ConditionStatus) bool {
			return c.Type == v1.NodeMemoryPressure && c.Status == v1.ConditionTrue
		}) &&
			!harness.Measured(s, signal, of.UID)
	})
	return eviction.Signalled.Sub(touched[crossing])
}
