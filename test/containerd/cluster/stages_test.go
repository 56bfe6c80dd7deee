package cluster_test

import (
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/test/containerd/cluster"
	"github.com/evictd/evictd/test/containerd/node"
	"github.com/evictd/evictd/test/harness"
)

// stage is a point of an eviction at which evictd stops in order, as at an upgrade, and is started again.
type stage struct {
	c      *cluster.Cluster
	h      *cluster.History
	e      *node.Evictd // which start replaces
	victim cluster.Sighting
	shared string // the directory that is /shared in the victim
	press  func() // has the victim use up what there is
	start  func() // another evictd
}

// stages are scenarios in which evictd stops at each stage of an eviction.
var stages = []scenario{
	{name: "evictd-stops-before-the-signal", kind: cluster.Deployment, flags: soft, stop: (*stage).heldByItsBudget},
	{name: "evictd-stops-in-a-soft-grace", kind: cluster.StatefulSet, flags: with(soft, sandbox.SoftEviction("direct")), orders: []string{"on TERM /shared/term 3s"}, stop: (*stage).signalled},
	{name: "evictd-stops-in-a-hard-grace", kind: cluster.StatefulSet, flags: hard, orders: []string{"on TERM /shared/term 1h"}, stop: (*stage).signalled},
	{name: "evictd-stops-before-the-report", kind: cluster.StatefulSet, flags: hard, orders: []string{"ignore-term"}, stop: (*stage).endedWithoutReport},
	{name: "evictd-stops-after-the-report", kind: cluster.Deployment, flags: hard, orders: []string{"ignore-term"}, stop: (*stage).reported},
}

// heldByItsBudget is where evictd has chosen the victim, which the API server does not grant until the next evictd has
// chosen it.
func (s *stage) heldByItsBudget() {
	s.c.MakeBudget(s.victim.Namespace)
	s.press()
	s.e.Evictd.AwaitEviction(s.victim.Pod, nil)
	s.e.Stop()
	s.start()
	s.e.Evictd.AwaitEviction(s.victim.Pod, nil)
	s.c.RemoveBudget(s.victim.Namespace)
}

// signalled is where the victim has SIGTERM.
func (s *stage) signalled() {
	s.press()
	s.c.Await("SIGTERM", func() bool {
		_, err := os.Stat(filepath.Join(s.shared, "term"))
		return err == nil
	})
	s.e.Stop()
	s.start()
}

// endedWithoutReport is where the victim has ended, and the API server does not answer.
func (s *stage) endedWithoutReport() {
	s.h.Late = true
	s.c.Pause(func() {
		s.press()
		s.e.Evictd.AwaitEviction(s.victim.Pod, harness.Gone)
		s.e.Stop()
	})
	s.start()
}

// reported is where the API server has just the eviction.
func (s *stage) reported() {
	s.press()
	s.h.Await("the report", func(seen cluster.Sighting) bool {
		return seen.UID == s.victim.UID && (seen.Deleted || seen.Status.Phase == v1.PodFailed)
	})
	s.e.Stop()
	s.start()
}

// testJobThatIsComplete has evictd stop before the report of a victim whose container has exited with 0, until the kubelet
// has reported that.
func testJobThatIsComplete(c *cluster.Cluster) {
	s := scenario{name: "job-is-complete", kind: cluster.Job, shortage: memory}
	namespace := c.Namespace(s.name)
	h := c.Record(namespace)
	e := c.Evictd(hard...)
	c.AwaitNoTaint()
	defer c.Remove(namespace)
	victim, _ := s.makeVictim(c, h, namespace)
	e.Await("evictd to measure the pod", func(status *nodestatus.Status) bool { return harness.Measured(status, memory.signal, victim.UID) })
	c.Pause(func() {
		s.press(c, victim)
		e.Evictd.AwaitEviction(victim.Pod, harness.Gone)
		e.Stop()
	})
	// It has failed where the API server had a request of the evictd that stopped.
	end := h.Await("the kubelet to report the end", func(seen cluster.Sighting) bool { return seen.UID == victim.UID && cluster.IsTerminal(seen) })
	e = c.Evictd(hard...)
	defer e.Stop()
	e.Await("everything to be reported", func(s *nodestatus.Status) bool { return s.API.Untold == 0 })
	c.Await("the event of the eviction", func() bool { return h.Events(victim.UID, "Evicted") == 1 })
	c.Await("the Job to count the pod", func() bool {
		for _, seen := range h.Of(victim.UID) {
			if cluster.IsTerminal(seen) && seen.Status.Phase != end.Status.Phase {
				c.T.Fatalf("the pod was %s and is %s", end.Status.Phase, seen.Status.Phase)
			}
		}
		job, err := c.BatchV1().Jobs(namespace).Get(c.T.Context(), "victim", metav1.GetOptions{})
		return err == nil && (job.Status.Succeeded == 1 || end.Status.Phase == v1.PodFailed)
	})
	if uids := h.UIDs(); end.Status.Phase == v1.PodSucceeded && len(uids) > 1 {
		c.T.Errorf("the Job is complete, and has %d pods", len(uids))
	}
}
