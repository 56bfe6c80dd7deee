package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rules are what every history with an eviction keeps to. Each returns what breaks it.
var rules = []struct {
	name   string
	broken func(h *History, victim types.UID, decided time.Time) []string
}{
	{"a terminal phase stays", changedPhase},
	{"a phase is terminal only once no process of the pod runs", earlyEnd},
	{"no pod replaces one of the same name while a process of that runs", twoOfAName},
	{"an eviction has one event", severalEvents},
	{"a victim has one replacement", severalReplacements},
	{"nothing is bound to the node until its taint is gone", boundMeanwhile},
}

// Check fails the test for every rule that the history breaks. The victim was chosen at
// an instant.
func (h *History) Check(victim types.UID, decided time.Time) {
	h.c.T.Helper()
	h.mu.Lock()
	fault := h.fault
	h.mu.Unlock()
	h.c.must(fault)
	of := h.Of(victim)
	h.c.Await("no process of the victim to be left", func() bool { return !h.c.Runs(of[len(of)-1].Pod) })
	for _, rule := range rules {
		for _, broken := range rule.broken(h, victim, decided) {
			h.c.T.Errorf("%s: %s", rule.name, broken)
		}
	}
}

func changedPhase(h *History, _ types.UID, _ time.Time) (broken []string) {
	for _, uid := range h.UIDs() {
		var phase v1.PodPhase
		for _, s := range h.Of(uid) {
			if phase != "" && s.Status.Phase != phase {
				broken = append(broken, fmt.Sprintf("pod %s was %s and is %s", name(s.Pod), phase, s.Status.Phase))
			}
			if phase = ""; IsTerminal(s) {
				phase = s.Status.Phase
			}
		}
	}
	return broken
}

func earlyEnd(h *History, _ types.UID, _ time.Time) (broken []string) {
	for _, s := range h.Sightings() {
		if IsTerminal(s) && s.Runs {
			broken = append(broken, fmt.Sprintf("pod %s runs and is %s", name(s.Pod), s.Status.Phase))
		}
	}
	return broken
}

// lateStart is how long after a late report the kubelet may start a container that it was already
// creating, and evictd may take to kill it.
const lateStart = 2 * time.Second

func twoOfAName(h *History, victim types.UID, _ time.Time) (broken []string) {
	var excused time.Time
	for _, s := range h.Of(victim) {
		if h.Late && IsTerminal(s) && !s.Runs {
			excused = s.At.Add(lateStart)
			break
		}
	}
	for _, s := range h.Sightings() {
		if s.Others && !s.Deleted && s.At.After(excused) {
			broken = append(broken, fmt.Sprintf("pod %s exists beside processes of an earlier one", name(s.Pod)))
		}
	}
	return broken
}

func severalEvents(h *History, victim types.UID, _ time.Time) (broken []string) {
	if events := h.Events(victim, "Evicted"); events != 1 {
		broken = append(broken, fmt.Sprintf("there are %d", events))
	}
	return broken
}

func severalReplacements(h *History, victim types.UID, decided time.Time) (broken []string) {
	var since []string
	for _, uid := range h.UIDs() {
		of := h.Of(uid)
		if of[0].At.After(decided) && !(of[0].Name == h.Of(victim)[0].Name && neverRan(of)) {
			since = append(since, name(of[0].Pod))
		}
	}
	if len(since) != 1 {
		broken = append(broken, fmt.Sprintf("pods made since: %q", since))
	}
	return broken
}

// neverRan says whether a pod was deleted before a process of it ran. kube-apiserver completes the
// deletion of a pod also where the kubelet writes its status meanwhile, and then by its name alone: on a
// busy machine that can meet the next pod of a StatefulSet, which is made again.
func neverRan(of []Sighting) bool {
	return of[len(of)-1].Deleted && !slices.ContainsFunc(of, func(s Sighting) bool { return s.Runs })
}

func boundMeanwhile(h *History, _ types.UID, decided time.Time) (broken []string) {
	h.mu.Lock()
	end := uint64(math.MaxUint64)
	if last := len(h.taint) - 1; last >= 0 && !h.taint[last].tainted {
		end = h.taint[last].version
	}
	if h.Restarted {
		end = 0 // a scheduler may see the pod before the taint: its watches begin again
	}
	h.mu.Unlock()
	for _, uid := range h.UIDs() {
		for _, s := range h.Of(uid) {
			if s.Spec.NodeName == "" {
				continue
			}
			if s.Spec.NodeName == h.c.Nodes[0].Name && s.At.After(decided) && version(s.Pod) < end {
				broken = append(broken, fmt.Sprintf("pod %s was bound %v after the decision", name(s.Pod), s.At.Sub(decided)))
			}
			break // it was bound
		}
	}
	return broken
}
