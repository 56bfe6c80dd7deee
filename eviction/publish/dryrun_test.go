package publish_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
)

func TestACandidateOfADryRunIsReportedOnceForACrossing(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	s.dryRun = true
	s.cfg.DryRun = true
	p := newFixture(t, publish.Config{Mode: nodestatus.Backstop, DryRun: true}, now)
	cross := func(from time.Duration) {
		t.Helper()
		for at := from; at <= from+time.Minute; at += 5 * time.Second { // a victim leaves flight when it would be overdue
			r := s.pass(at, control.Housekeeping, reading(900*mebi))
			now.at(s, r)
			p.publish(r)
		}
	}
	mustHave := func(times int) {
		t.Helper()
		status := p.status()
		if n := strings.Count(p.log.String(), `msg="would evict"`); n != times || len(status.WouldBe.Evictions) != times {
			t.Errorf("%d times in the log and %d in the status, want %d", n, len(status.WouldBe.Evictions), times)
		}
		if !status.DryRun || len(status.Conditions)+len(status.Taints)+len(status.Evictions) > 0 {
			t.Errorf("the status is %+v", status)
		}
	}
	cross(0)
	mustHave(1)
	if would := p.status().WouldBe; !slices.Contains(would.Taints, "evictd.io/memory-pressure:NoSchedule") || len(would.Conditions) == 0 {
		t.Errorf("would be %+v", would)
	}
	p.hasSeries(`evictd_node_condition{condition="evictd.io/MemoryPressure"} 0`)
	p.publish(s.pass(10*time.Minute, control.Housekeeping, reading(3*gibi)))
	cross(20 * time.Minute)
	mustHave(2)
}

func TestProgramsOutsideAreNotBlamedForAShortageWithinThePods(t *testing.T) {
	for _, c := range []struct {
		name   string
		met    []eviction.Signal
		blamed bool
	}{
		{"of the node", []eviction.Signal{eviction.MemoryAvailable}, true},
		{"of the pods' cgroup", []eviction.Signal{eviction.AllocatableMemoryAvailable}, false},
		{"of both", []eviction.Signal{eviction.AllocatableMemoryAvailable, eviction.MemoryAvailable}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newFixture(t, publish.Config{OutsideUsers: func(eviction.Condition) []nodestatus.User {
				return []nodestatus.User{{Name: "system.slice/backup.service", Used: gibi}}
			}}, nil)
			r := control.Report{At: begun, Eviction: &eviction.Config{}}
			for i, signal := range c.met {
				r.Eviction.Thresholds = append(r.Eviction.Thresholds, eviction.Threshold{Signal: signal})
				r.State.Thresholds[i].FirstObserved = begun
			}
			r.State.Pressure[eviction.MemoryPressure].Reported, r.State.Relief[eviction.MemoryPressure].Outside = true, true
			p.publish(r)
			if log := p.log.String(); strings.Contains(log, "backup.service") != c.blamed {
				t.Errorf("the log is\n%s", log)
			}
		})
	}
}

func TestAnEvictionOfThePreviousProcessHasNoTimesOfThisOne(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	now.at(s, s.pass(0, control.Housekeeping, reading(3*gibi)))
	p.Resume([]wire.Intent{{UID: "uid-a", Namespace: "default", Name: "a", Signal: "memory.available", Hard: true, Crossed: begun.Add(-time.Minute), Decided: begun.Add(-time.Minute)}})
	p.publish(killed("uid-a", time.Second, 2*time.Second))
	if log := p.log.String(); !strings.Contains(log, "crossingToGone=1m2s") || strings.Contains(log, "crossingToSignal") || strings.Contains(log, "signalToGone") {
		t.Errorf("the log is\n%s", log)
	}
	if e := p.status().Evictions[0]; !e.Signalled.IsZero() {
		t.Errorf("signalled first at %v", e.Signalled)
	}
}

func TestAnEstimatedRequestIsSaidToBeOne(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	s.candidates[0].Pod.Estimated = true
	p := newFixture(t, publish.Config{}, now)
	r := s.pass(0, control.Poll, reading(900*mebi))
	now.at(s, r)
	p.publish(r)
	if e := p.status().Evictions[0]; !strings.Contains(e.Message, "requests are estimated") {
		t.Errorf("the message is %q", e.Message)
	}
}
