package node_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/harness"
)

func TestManifestThatDoesNotParseIsReportedAndTheOtherPodsStayProtected(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	n.WriteFile("before.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: 7}\n")
	leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
	bystander := n.Start("bystander", sandbox.Spec{Request: "64Mi"})
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, leaker, bystander)
	n.WriteFile("after.yaml", "{")
	for _, file := range []string{"before.yaml", "after.yaml"} {
		d.AwaitLog(`msg="pod manifest skipped" file=` + file)
	}
	press(leaker, 32)
	d.AwaitGone(leaker)
	d.MustHaveEvicted(leaker)
	harness.MustRun(t, bystander)
}

func TestPodWhoseCgroupVanishesIsNoError(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	vanishing := n.Start("vanishing", sandbox.Spec{})
	leaker := n.Start("leaker", sandbox.Spec{Request: "8Mi"})
	d := n.Evictd(sandbox.EvictionHard("memory.available<64Mi"))
	d.AwaitPods(memorySignal, vanishing, leaker)
	vanishing.End()
	n.Delete(vanishing.Group)
	press(leaker, 32)
	d.AwaitGone(leaker)
	d.MustHaveEvicted(leaker)
	for line := range strings.Lines(d.Log()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "vanishing") {
			t.Errorf("unexpected line in the log: %s", line)
		}
	}
}

func TestAnnotatedCgroupIsHonouredBelowThePodsCgroupAndRefusedElsewhere(t *testing.T) {
	t.Parallel()
	n := harness.NewNode(t, nodeMemory, nodePIDs)
	annotated := func(name, cgroup, at string) *harness.Pod {
		m := n.Manifest(name, sandbox.Spec{Annotations: map[string]string{"evictd.io/cgroup": cgroup}})
		defer n.Write(m)
		return n.StartIn(m, n.Group+"/"+at, nil)
	}
	escaping := annotated("escaping", "../outside", "outside")
	whole := annotated("whole", ".", n.PodsGroup()+"/elsewhere")
	holdsDaemon := annotated("holds-daemon", "system", n.PodsGroup()+"/system/beside")
	placed := annotated("placed", "custom/place", n.PodsGroup()+"/custom/place")
	for _, p := range []*harness.Pod{escaping, whole, holdsDaemon} {
		p.Do("hold 20Mi")
	}
	// The daemon starts in a cgroup of its own below the pods'.
	own := n.Group + "/" + n.PodsGroup() + "/system/daemon"
	n.Make(own, cgroup.Limits{})
	inside := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(n.Cgroups.Mount("memory"), own, "cgroup.procs")}
	evictd := n.Command(sandbox.CgroupRoot(n.Group), sandbox.EvictionHard("memory.available<64Mi"))
	d := n.Protect(exec.Command("sh", append(inside, evictd.Args...)...), nil)
	d.AwaitPods(memorySignal, placed)
	for name, why := range map[string]string{
		"escaping": "is not below the pods' cgroup", "whole": "is the pods' cgroup itself", "holds-daemon": "holds the daemon itself",
	} {
		harness.Await(t, "the log to say that the cgroup of pod "+name+" "+why, func() bool {
			return slices.ContainsFunc(strings.Split(d.Log(), "\n"), func(line string) bool {
				return strings.Contains(line, "pod=default/"+name) && strings.Contains(line, why)
			})
		})
	}
	press(placed, 32)
	d.AwaitGone(placed)
	d.MustHaveEvicted(placed)
	harness.MustRun(t, escaping, whole, holdsDaemon)
}

// bySession are the flags of an evictd that finds pods by their sessions. A pass reads all
// processes of this host.
var bySession = []string{sandbox.NodeMemory("192Mi"), sandbox.EvictionHard("memory.available<64Mi"), sandbox.Housekeeping("500ms")}

func TestPodsThatLiveInSessionsAreMeasuredAndEvictedWithoutCgroups(t *testing.T) {
	for name, user := range map[string]*syscall.Credential{"as root": nil, "without privileges": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.NewNode(t, nodeMemory, nodePIDs) // bounds the pods; evictd does not know of it
			session := func(name, request string) *harness.Pod {
				m := n.Manifest(name, sandbox.Spec{Request: request})
				p := n.StartIn(m, n.Group+"/"+name, user)
				m.Annotations = map[string]string{"evictd.io/session": fmt.Sprint(p.PID())}
				n.Write(m)
				return p
			}
			leaker, within := session("leaker", "8Mi"), session("within", "96Mi")
			within.Do("hold 80Mi")
			leaker.Do("fork 3")
			d := n.Protect(n.Command(bySession...), user)
			d.AwaitPods(memorySignal, leaker, within)
			mustScore(t, leaker, 1000-1000*8/192)
			leaker.Send("hold 100Mi")
			if e := d.AwaitGone(leaker); e.Signal != memorySignal {
				t.Errorf("unexpected eviction %+v", e)
			}
			d.Await("memory to be available again", func(s *nodestatus.Status) bool { return len(s.Taints) == 0 })
			d.MustHaveEvicted(leaker)
			harness.MustRun(t, within)
		})
	}
}
