package recorder

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
)

func (i *incident) configuration() config.EvictdConfiguration {
	file := config.EvictdConfiguration{
		EvictionHard: map[string]string{}, EvictionSoft: map[string]string{}, EvictionSoftGracePeriod: map[string]string{},
		EvictionMinimumReclaim: map[string]string{}, EvictionMaxPodGracePeriod: int32(i.IntN(40)),
	}
	for _, s := range []struct {
		name    string
		amounts []string
	}{{"memory.available", []string{"1Gi", "2Gi", "20%"}}, {"nodefs.available", []string{"10Gi", "15%", "20Gi"}}, {"pid.available", []string{"500", "1000", "30%"}}, {"swap.available", []string{"100Mi", "200Mi", "20%"}}, {"memory.stall", []string{"40%", "30%", "20%"}}} {
		if !i.chance(4) {
			file.EvictionHard[s.name] = s.amounts[i.IntN(2)]
		}
		if i.chance(2) {
			file.EvictionSoft[s.name], file.EvictionSoftGracePeriod[s.name] = s.amounts[2], fmt.Sprint(5+i.IntN(30), "s")
		}
		if i.chance(3) {
			file.EvictionMinimumReclaim[s.name] = "5%"
		}
	}
	if i.chance(3) {
		file.VictimsPerPass = "enough"
	}
	if i.chance(3) {
		file.HardEvictionGracePeriod = &metav1.Duration{Duration: i.between(0, time.Second)}
	}
	i.configureSteps(&file)
	if i.chance(2) {
		file.WarningNamespaces = []string{"default"}
		file.WarningLead, file.WarningInterval = metav1.Duration{Duration: i.between(time.Second, 20*time.Second)}, metav1.Duration{Duration: i.between(time.Second, time.Minute)}
	}
	return file
}

// run simulates the incident for some minutes and returns what was reported and recorded.
func (i *incident) run(t *testing.T) (decided []string, recording *Recording) {
	i.begun, i.uids, i.woken, i.results = time.Now(), 10, make(chan struct{}, 1), make(chan kill.Result, 64)
	i.scanned, i.reclaimed = make(chan struct{}, 64), make(chan eviction.Signal, 64)
	file := i.configuration()
	compiled, err := config.Compile(&file, nil)
	require.NoError(t, err)
	cfg := control.Config{Eviction: eviction.New(compiled.Eviction, eviction.SharedFs), HousekeepingInterval: 10 * time.Second}
	cfg.Eviction.HardGrace, cfg.Eviction.DryRun, cfg.Eviction.MeasuresRelief = time.Second, i.chance(10), !i.chance(4)
	if file.HardEvictionGracePeriod != nil {
		cfg.Eviction.HardGrace = file.HardEvictionGracePeriod.Duration
	}
	if i.chance(2) {
		cfg.Eviction.SoftPatience = 7 * time.Second
	}
	ports := control.Ports{Sensor: i, Waiter: i, Killer: killer{i}, Steps: &incidentSteps{i, make(chan eviction.StepOutcome, 64)}}
	if i.chance(2) {
		ports.DiskScanner = i
	}
	if i.chance(2) {
		ports.Reclaimer = i
	}
	if i.chance(2) {
		ports.UnknownPods = i
	}
	for n := range 3 + i.IntN(4) {
		i.add(fmt.Sprint("pod-", n), n)
	}
	var state eviction.State
	for crash := range i.IntN(3) + 1 {
		state = i.live(t, cfg, ports, file, state, time.Duration(crash+1)*time.Minute+i.between(0, time.Minute), &decided)
		time.Sleep(i.between(0, 20*time.Second))
	}
	i.kills.Wait()
	return decided, parse(i.segments)
}

// live runs one loop until so long after the beginning, and returns its state as it
// is restored after a crash.
func (i *incident) live(t *testing.T, cfg control.Config, ports control.Ports, file config.EvictdConfiguration, state eviction.State, until time.Duration, decided *[]string) eviction.State {
	i.loop = control.New(cfg, ports, slog.New(slog.DiscardHandler))
	i.loop.Resume(state)
	recorder := New(Config{Version: "test", Node: simulate.FileNode{Name: "n"}, Eviction: file, Pods: i.manifests}, i.loop, slog.New(slog.DiscardHandler))
	recorder.ring, i.left = i, 0
	i.setPods()
	ctx, cancel := context.WithCancel(t.Context())
	records, stop := context.WithCancel(t.Context())
	var running, recorded sync.WaitGroup
	running.Go(func() { _ = i.loop.Run(ctx) })
	recorded.Go(func() { _ = recorder.Run(records) })
	var last control.Report
	running.Go(func() {
		for r := range i.loop.Reports() {
			recorder.Record(r)
			if r.Ended != nil {
				continue
			}
			if last = r; i.first.IsZero() {
				i.first = r.At
			}
			for _, d := range r.Decisions {
				for j := range d.Steps {
					i.steps = append(i.steps, stepLine(r.At.Sub(i.first), nodestatus.NewStep(&d.Steps[j])))
				}
				for _, e := range d.Evictions {
					*decided = append(*decided, line(r.At.Sub(i.first), e.Pod.String(), e.Signal.String(), e.Grace, e.GracePeriodSeconds))
				}
			}
			for _, e := range r.Failed {
				*decided = append(*decided, fmt.Sprint(r.At.Sub(i.first), " fails ", e.Pod))
			}
		}
	})
	for time.Since(i.begun) < until {
		time.Sleep(i.between(0, 30*time.Second))
		names := i.sweep()
		i.uids++
		switch {
		case len(names) > 0 && i.chance(2):
			i.add(names[0], i.uids)
		case i.chance(2):
			i.add(fmt.Sprint("pod-", i.uids), i.uids)
		}
		i.setPods()
	}
	cancel()
	running.Wait()
	stop()
	recorded.Wait()
	if recorder.Lost() > 0 {
		t.Errorf("%d reports are lost", recorder.Lost())
	}
	kept := last.State.Keep(last.Eviction, last.At)
	return kept.Restore(&cfg.Eviction, time.Now(), time.Since(last.At))
}

func line(at time.Duration, pod, signal string, grace time.Duration, seconds int64) string {
	return fmt.Sprintf("%v %s for %s in %v of %ds", at, pod, signal, grace, seconds)
}

func stepLine(at time.Duration, s nodestatus.Step) string { return fmt.Sprint(at, " ", s.Text()) }

// rule: M.57
func TestARecordedIncidentReplaysToTheSameDecisions(t *testing.T) { replayIncidents(t, 60) }

func TestCampaignRecordedIncidents(t *testing.T) {
	campaign.Only(t)
	replayIncidents(t, campaign.Size(2000, 60))
}

// replayIncidents compares every eviction of random incidents with that of its
// recording: when, of which pod, for which signal, with which grace, and those whose
// kill fails.
func replayIncidents(t *testing.T, incidents int) {
	evictions := map[string]int{} // by signal
	for seed := range incidents {
		synctest.Test(t, func(t *testing.T) {
			i := &incident{random: rand.New(rand.NewPCG(uint64(seed), 0))}
			decided, recording := i.run(t)
			stories := recording.Stories()
			if len(stories) == 0 {
				return
			}
			var replayed, steps []string
			for _, s := range replay(t, recording, recording.Scenario(&stories[len(stories)-1])) {
				at, err := time.ParseDuration(s.At)
				require.NoError(t, err)
				for _, e := range s.Evictions {
					replayed = append(replayed, line(at, e.Pod, e.Signal, e.Grace, e.GracePeriodSeconds))
					evictions[e.Signal]++
				}
				for _, b := range s.Before {
					steps = append(steps, stepLine(at, b))
					evictions[map[bool]string{true: "end of "}[b.Over]+b.Step]++
				}
				for _, pod := range s.FailedKills {
					replayed = append(replayed, s.At+" fails "+pod)
				}
			}
			ends := stories[len(stories)-1].Decided.Add(leadOut)
			decided = slices.DeleteFunc(decided, func(line string) bool {
				at, err := time.ParseDuration(strings.Fields(line)[0])
				require.NoError(t, err)
				return i.first.Add(at).After(ends)
			})
			// The scenario ends a minute after the last eviction.
			if live := i.steps[:min(len(i.steps), len(steps))]; !slices.Equal(live, steps) {
				t.Errorf("steps before evictions\n%s\nreplayed\n%s\n", strings.Join(live, "\n"), strings.Join(steps, "\n"))
			}
			if !slices.Equal(decided, replayed) {
				t.Errorf("decided\n%s\nreplayed\n%s\n", strings.Join(decided, "\n"), strings.Join(replayed, "\n"))
			}
		})
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	for _, signal := range []string{"memory.available", "nodefs.available", "pid.available", "swap.available", "memory.stall", "emptydirfs.limit", "admission", "warn", "end of warn", "reclaim", "end of reclaim", "throttle", "end of throttle"} {
		if evictions[signal] < incidents/20 {
			t.Errorf("too few evictions for %s: %v", signal, evictions)
		}
	}
	t.Log("evictions:", evictions)
}
