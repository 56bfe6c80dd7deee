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
	"github.com/evictd/evictd/nodestatus"
)

func TestManifestThatDoesNotParseIsToldAndTheOtherPodsStayProtected(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	n.writeFile("before.yaml", []byte("apiVersion: v1\nkind: Pod\nspec: {containers: 7}\n"))
	leaker := n.start("leaker", podSpec{request: "8Mi"})
	bystander := n.start("bystander", podSpec{request: "64Mi"})
	d := n.run("--eviction-hard=memory.available<64Mi")
	d.awaitPods(memorySignal, leaker, bystander)
	n.writeFile("after.yaml", []byte("{"))
	for _, file := range []string{"before.yaml", "after.yaml"} {
		await(t, "the log to tell of "+file, func() bool {
			return strings.Contains(d.Log.String(), `msg="pod manifest skipped" file=`+file)
		})
	}
	leaker.tell("leak 0 400")
	d.awaitEnd(leaker)
	d.mustHaveEvicted(leaker)
	mustLive(t, bystander)
}

func TestPodWhoseCgroupVanishesIsNoError(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	vanishing := n.start("vanishing", podSpec{})
	leaker := n.start("leaker", podSpec{request: "8Mi"})
	d := n.run("--eviction-hard=memory.available<64Mi")
	d.awaitPods(memorySignal, vanishing, leaker)
	vanishing.end()
	if err := n.cgroups.Delete(vanishing.group); err != nil {
		t.Fatal(err)
	}
	leaker.tell("leak 0 400")
	d.awaitEnd(leaker)
	d.mustHaveEvicted(leaker)
	for line := range strings.Lines(d.Log.String()) {
		if strings.Contains(line, "level=ERROR") || strings.Contains(line, "vanishing") {
			t.Errorf("unexpected line in the log: %s", line)
		}
	}
}

func TestAnnotatedCgroupIsHonouredBelowThePodsCgroupAndRefusedElsewhere(t *testing.T) {
	t.Parallel()
	n := newNode(t, nodeMemory, nodePIDs)
	annotated := func(name, cgroup, at string) *pod {
		m := n.manifest(name, podSpec{annotations: map[string]string{"evictd.io/cgroup": cgroup}})
		defer n.write(m)
		return n.startIn(m, n.group+"/"+at, nil)
	}
	escaping := annotated("escaping", "../outside", "outside")
	whole := annotated("whole", ".", podsCgroup+"/elsewhere")
	holdsDaemon := annotated("holds-daemon", "system", podsCgroup+"/system/beside")
	placed := annotated("placed", "custom/place", podsCgroup+"/custom/place")
	for _, p := range []*pod{escaping, whole, holdsDaemon} {
		p.do("hold 20")
	}
	// The daemon starts in a cgroup of its own below the pods'.
	own := n.group + "/" + podsCgroup + "/system/daemon"
	if err := n.cgroups.Create(own, cgroup.Limits{}); err != nil {
		t.Fatal(err)
	}
	inside := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(n.cgroups.Mount("memory"), own, "cgroup.procs"), program}
	args := n.arguments("--cgroup-root="+n.group, "--eviction-hard=memory.available<64Mi")
	d := n.launch(exec.Command("sh", append(inside, args...)...), nil)
	d.awaitPods(memorySignal, placed)
	for name, why := range map[string]string{
		"escaping": "is not below the pods' cgroup", "whole": "is the pods' cgroup itself", "holds-daemon": "holds the daemon itself",
	} {
		refused := slices.ContainsFunc(strings.Split(d.Log.String(), "\n"), func(line string) bool {
			return strings.Contains(line, "pod=default/"+name) && strings.Contains(line, why)
		})
		if !refused {
			t.Errorf("the log does not say that the cgroup of pod %s %s", name, why)
		}
	}
	placed.tell("leak 0 400")
	d.awaitEnd(placed)
	d.mustHaveEvicted(placed)
	mustLive(t, escaping, whole, holdsDaemon)
}

func TestPodsThatLiveInSessionsAreMeasuredAndEvictedWithoutCgroups(t *testing.T) {
	for name, user := range map[string]*syscall.Credential{"as root": nil, "as nobody": {Uid: 65534, Gid: 65534}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, nodeMemory, nodePIDs) // bounds the pods; evictd does not know of it
			session := func(name, request string) *pod {
				m := n.manifest(name, podSpec{request: request})
				p := n.startIn(m, n.group+"/"+name, user)
				m.Annotations = map[string]string{"evictd.io/session": fmt.Sprint(p.pid())}
				n.write(m)
				return p
			}
			leaker, within := session("leaker", "8Mi"), session("within", "96Mi")
			within.do("hold 80")
			leaker.do("fork 3")
			d := n.launch(exec.Command(program, n.arguments("--node-memory=192Mi", "--eviction-hard=memory.available<64Mi")...), user)
			d.awaitPods(memorySignal, leaker, within)
			mustScore(t, leaker, 1000-1000*8/192)
			leaker.tell("leak 100 400")
			if e := d.awaitEnd(leaker); e.Signal != memorySignal {
				t.Errorf("unexpected eviction %+v", e)
			}
			d.await("memory to be available again", func(s *nodestatus.Status) bool { return len(s.Taints) == 0 })
			d.mustHaveEvicted(leaker)
			mustLive(t, within)
		})
	}
}
