package publish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

func TestTheLogShowsTheStoryOfAnEviction(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	p.publish(newReporter().reports()...)
	golden.Check(t, "testdata/eviction.log", p.log.Bytes())
}

func TestTheEvictionOfAPodWithoutProcessesHasNoTimeOfASignal(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	reports := newReporter().reports()[:3]
	reports[2].Ended.Signalled = time.Time{}
	p.publish(reports...)
	if log := p.log.String(); !strings.Contains(log, "freed=690Mi crossingToGone=500ms\n") {
		t.Error(log)
	}
}

// TestTheMetricsPageKeepsItsNames compares names, labels, help and types; the values
// are removed first.
func TestTheMetricsPageKeepsItsNames(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	p.publish(newReporter().reports()...)
	golden.Check(t, "testdata/metrics.txt", regexp.MustCompile(`(?m)^([^#].*) \S+$`).ReplaceAll([]byte(p.page()), []byte("$1 0")))
}

func TestMetricsHoldWhatWasSeen(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	s := newReporter()
	p.publish(s.pass(0, control.Housekeeping, reading(900*mebi)))
	p.hasSeries(
		`evictd_signal_available{signal="memory.available"} 9.437184e+08`,
		`evictd_signal_capacity{signal="memory.available"} 4.294967296e+09`,
		`evictd_threshold{kind="soft",signal="memory.available"} 2.147483648e+09`,
		`evictd_threshold{kind="hard",signal="nodefs.available"} 1.073741824e+10`,
		`evictd_memory_available_bytes{model="workingSet"} 9.437184e+08`,
		`evictd_memory_available_bytes{model="available"} 9.961472e+08`,
		`evictd_node_condition{condition="MemoryPressure"} 1`,
		`evictd_node_condition{condition="DiskPressure"} 0`,
		`evictd_victims_in_flight 1`,
		`evictd_passes_total{source="housekeeping"} 1`,
		`kubelet_eviction_stats_age_seconds_sum{eviction_signal="memory.available"} 0.001`,
	)
	before := p.page()
	if strings.Contains(before, `evictd_signal_available{signal="pid.available"`) || !strings.Contains(before, `evictd_signal_measured{signal="pid.available"} 0`) {
		t.Error("a signal that was not measured has a value")
	}

	other := eviction.New(eviction.Config{Thresholds: s.cfg.Thresholds[:1]}, eviction.SharedFs)
	s.cfg = &other
	p.publish(s.pass(time.Second, control.Poll, stats.Node{NodeFs: reading(0).NodeFs}))
	for line := range strings.Lines(p.page()) {
		if strings.HasPrefix(line, "evictd_threshold{") || strings.HasPrefix(line, `evictd_signal_available{signal="memory`) {
			t.Errorf("it is neither configured nor measured any more: %s", line)
		}
	}
}

func TestWhatBecomesOfAKillIsCountedOnceForEachOutcome(t *testing.T) {
	const total = `evictd_evictions_total{kind="hard",outcome="%s",signal="memory.available"} %d`
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	decided := s.pass(12*time.Second, control.Poll, reading(900*mebi))
	refused := decided
	refused.Failed = decided.Decisions[0].Evictions
	refused.Decisions = nil
	rehearsed := decided
	rehearsed.DryRun = true
	now.at(s, decided)

	p.publish(rehearsed)
	p.hasSeries(fmt.Sprintf(total, "dry-run", 1))
	p.publish(refused)
	p.hasSeries(fmt.Sprintf(total, "failed", 1))
	p.publish(killed("uid-a", 0, 0), killed("unknown", 0, 0))
	if got := p.status().Evictions; len(got) != 0 {
		t.Errorf("no pod was evicted, but %v", got)
	}

	p.publish(decided, unkilled("uid-a", fmt.Errorf("kill pod: %w", kill.ErrNotSignalled)))
	p.hasSeries(fmt.Sprintf(total, "failed", 2))
	p.publish(killed("uid-a", 12010*time.Millisecond, 12500*time.Millisecond), killed("uid-a", 13*time.Second, 14*time.Second))
	p.hasSeries(
		fmt.Sprintf(total, "gone", 1), fmt.Sprintf(total, "failed", 2), fmt.Sprintf(total, "dry-run", 1),
		`kubelet_evictions{eviction_signal="memory.available"} 1`,
		`evictd_eviction_freed_bytes_total 7.2351744e+08`,
		`evictd_eviction_duration_seconds_sum{signal="memory.available"} 0.5`,
	)
	if got := p.status().Evictions; len(got) != 1 || !got[0].Gone.Equal(begun.Add(12500*time.Millisecond)) {
		t.Errorf("evictions are %v, want the one", got)
	}
}

func TestReportsThatWereLostShow(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	r := newReporter().pass(0, control.Housekeeping, reading(3*gibi))
	r.Lost = 7
	p.publish(r)
	p.hasSeries("evictd_reports_lost_total 7")
}

func TestTheStatusDocument(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{Mode: nodestatus.Native}, now)
	reports := s.reports()[:3]
	p.publish(reports...)
	now.at(s, reports[1])
	text := indented(t, p.status())
	golden.Check(t, "testdata/status.json", text)

	// The fields of the contract, in its order; others may follow them.
	var document struct {
		Signals, Conditions, Evictions []json.RawMessage
		Ranking                        map[string][]json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &document))
	for what, c := range map[string]struct {
		object json.RawMessage
		fields string
	}{
		"document":   {text, "node mode time signals conditions taints ranking evictions"},
		"signal":     {document.Signals[1], "name available capacity age source secondsToThreshold thresholds"},
		"condition":  {document.Conditions[0], "type status reason lastTransitionTime"},
		"ranked pod": {document.Ranking["memory.available"][0], "pod uid qosClass priority usage request exceeds protected wouldFree"},
		"eviction":   {document.Evictions[0], "pod uid signal crossed decided signalled gone freed source reason message"},
	} {
		if got := strings.Join(fields(t, c.object), " "); !strings.HasPrefix(got+" ", c.fields+" ") {
			t.Errorf("the fields of a %s are %q, want first %q", what, got, c.fields)
		}
	}
}

// fields are the names in a JSON object, in order.
func fields(t *testing.T, object json.RawMessage) (names []string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		name, err := decoder.Token()
		require.NoError(t, err)
		var value json.RawMessage
		require.NoError(t, decoder.Decode(&value))
		names = append(names, name.(string))
	}
	return names
}

func TestTheStatusKeepsTheLastHundredEvictions(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	one := s.pass(0, control.Poll, reading(900*mebi))
	now.at(s, one)
	for i := range 105 {
		pod := *s.candidates[0].Pod
		pod.Name, pod.UID = fmt.Sprint("pod-", i), types.UID(fmt.Sprint("uid-", i))
		e := one.Decisions[0].Evictions[0]
		e.Pod = &pod
		r := one
		r.Decisions = []eviction.Decision{{Evictions: []eviction.Eviction{e}}}
		p.publish(r)
	}
	p.publish(killed("uid-4", 0, 0), killed("uid-5", 0, time.Second))
	got := p.status().Evictions
	if len(got) != 100 || got[0].Pod != "default/pod-5" || got[0].Gone.IsZero() || got[99].Pod != "default/pod-104" {
		t.Errorf("%d evictions, first %v, last %v", len(got), got[0], got[len(got)-1])
	}
}

func TestTheNodeManifest(t *testing.T) {
	capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("4Gi")}
	allocatable := v1.ResourceList{v1.ResourceMemory: resource.MustParse("3Gi")}
	for _, mode := range []nodestatus.Mode{nodestatus.Native, nodestatus.Backstop, nodestatus.Observe} {
		t.Run(mode.String(), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "node.yaml")
			p := newFixture(t, publish.Config{Mode: mode, NodeFile: file, Capacity: capacity, Allocatable: allocatable}, nil)
			p.publish(newReporter().reports()[:2]...)
			got := require.ReadFile(t, file)
			golden.Check(t, "testdata/node-"+mode.String()+".yaml", got)
		})
	}
}

func TestTheNodeManifestIsReplacedWholeAndOnlyWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "node.yaml")
	p := newFixture(t, publish.Config{NodeFile: file}, nil)
	var last os.FileInfo
	replaced := func(r control.Report) bool {
		p.publish(r)
		now, err := os.Stat(file)
		require.NoError(t, err)
		before := last
		last = now
		return before == nil || !os.SameFile(before, now)
	}
	reports := newReporter().reports()
	for i, want := range []bool{true, true, false, false, true} { // pressure begins with the second report and ends with the last
		reader, err := os.Open(file)
		var before []byte
		if err == nil {
			if before, err = os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
		if got := replaced(reports[i]); got != want {
			t.Errorf("report %d: replaced %v, want %v", i, got, want)
		}
		if reader != nil {
			if after, err := io.ReadAll(reader); err != nil || !bytes.Equal(after, before) {
				t.Errorf("report %d: a reader of the old manifest sees it changed: %v", i, err)
			}
			reader.Close()
		}
	}
	if last.Mode().Perm() != 0o644 {
		t.Errorf("the manifest's mode is %v", last.Mode())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestANodeManifestThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	s := newReporter()
	p := newFixture(t, publish.Config{NodeFile: filepath.Join(dir, "node.yaml")}, nil)
	p.publish(s.pass(0, control.Housekeeping, reading(3*gibi)))
	if !strings.Contains(p.log.String(), "could not write the node status file") {
		t.Errorf("not logged: %s", p.log.String())
	}
	require.NoError(t, os.Mkdir(dir, 0o755))
	p.publish(s.pass(10*time.Second, control.Housekeeping, reading(3*gibi)))
	if _, err := os.Stat(filepath.Join(dir, "node.yaml")); err != nil {
		t.Error(err)
	}
}

func TestConditionsKeepTheTimeOfTheirLastTransition(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	var got []string
	for _, r := range []control.Report{
		s.pass(0, control.Housekeeping, reading(3*gibi)),
		s.pass(10*time.Second, control.Housekeeping, reading(900*mebi)),
		s.pass(20*time.Second, control.Housekeeping, reading(900*mebi), eviction.Outcome{UID: "uid-a"}),
		s.pass(30*time.Second, control.Housekeeping, reading(3*gibi), eviction.Outcome{UID: "uid-b"}),
		s.pass(90*time.Second, control.Housekeeping, reading(3*gibi)),
		s.pass(100*time.Second, control.Housekeeping, reading(3*gibi)),
	} {
		p.publish(r)
		now.at(s, r)
		c := p.status().Conditions[0]
		got = append(got, fmt.Sprintf("%s since %v", c.Status, c.LastTransitionTime.Sub(begun)))
	}
	want := []string{"False since 0s", "True since 10s", "True since 10s", "True since 10s", "False since 1m30s", "False since 1m30s"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if got := strings.Count(p.log.String(), "node condition changed"); got != 2 {
		t.Errorf("logged %d changes, want 2:\n%s", got, p.log.String())
	}
}

func TestAConditionThatHoldsFromTheStartIsReported(t *testing.T) {
	p := newFixture(t, publish.Config{}, nil)
	p.publish(newReporter().pass(0, control.Housekeeping, reading(900*mebi)))
	if !strings.Contains(p.log.String(), "condition=MemoryPressure status=True") {
		t.Errorf("logged only %s", p.log.String())
	}
}

func TestAStatusThatCannotBeHadIsAnError(t *testing.T) {
	p := newFixture(t, publish.Config{}, &fixedSnapshot{err: context.DeadlineExceeded})
	if _, err := p.Status(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// recorderFunc is a function that is called with each report.
type recorderFunc func(control.Report)

func (f recorderFunc) Record(r control.Report) { f(r) }

// TestWhatTheStatusShowsIsRecordedBefore: evictd why knows of what evictd status shows.
func TestWhatTheStatusShowsIsRecordedBefore(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	var p *fixture
	var recorded, shown int
	p = newFixture(t, publish.Config{Recorders: []publish.Recorder{recorderFunc(func(r control.Report) {
		for i := range r.Decisions {
			recorded += len(r.Decisions[i].Evictions)
		}
		if shown = len(p.status().Evictions); shown >= recorded && recorded > 0 {
			t.Errorf("of %d evictions %d are shown before they are recorded", recorded, shown)
		}
	})}}, now)
	crossing := s.pass(0, control.Poll, reading(900*mebi))
	now.at(s, crossing)
	p.publish(crossing)
	if shown = len(p.status().Evictions); recorded != 1 || shown != 1 {
		t.Errorf("%d evictions are recorded and %d shown", recorded, shown)
	}
}

func TestReadinessComesWithTheFirstPass(t *testing.T) {
	s := newReporter()
	p := newFixture(t, publish.Config{}, nil)
	p.publish(killed("uid-a", 0, 0))
	if p.Ready() || !p.LastPass().IsZero() {
		t.Error("ready before the first pass")
	}
	p.publish(s.pass(time.Second, control.Housekeeping, reading(gibi)))
	if !p.Ready() || !p.LastPass().Equal(begun.Add(time.Second)) {
		t.Errorf("not ready after a pass, the last one was at %v", p.LastPass())
	}
}

func TestAnyGoroutineMayAskWhileReportsComeIn(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{NodeFile: filepath.Join(t.TempDir(), "node.yaml")}, now)
	reports := s.reports()
	now.at(s, reports[1])
	var all sync.WaitGroup
	all.Go(func() {
		for range 20 {
			p.publish(reports...)
		}
	})
	for range 2 {
		all.Go(func() {
			for range 50 {
				if _, err := json.Marshal(p.status()); err != nil {
					t.Error(err)
				}
				p.page()
				p.Ready()
				p.LastPass()
			}
		})
	}
	all.Wait()
}

func TestSummaryNamesTheNearestThresholdItsVictimAndWhatIsNotMeasured(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{}, now)
	line := func(node stats.Node) string {
		t.Helper()
		now.at(s, s.pass(s.at+time.Second, control.Housekeeping, node))
		line, err := p.Summary(t.Context())
		require.NoError(t, err)
		return line
	}
	if got, want := line(reading(3*gibi)), "memory.available is 3Gi, soft threshold 2Gi; next victim: default/a; not measured: containerfs.available, pid.available"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	disk := reading(4 * gibi)
	disk.NodeFs.Available = stats.Known(11 * gibi)
	s.candidates = s.candidates[2:3]
	if got, want := line(disk), "nodefs.available is 11Gi, hard threshold 10Gi; next victim: none; not measured: containerfs.available, pid.available"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := line(stats.Node{}), "no threshold is measured; not measured: containerfs.available, memory.available, nodefs.available, pid.available"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	now.err = context.DeadlineExceeded
	if _, err := p.Summary(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestTheExplanation(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{Node: "n1"}, now)
	s.candidates[0].Pod.Containers[0].StorageLimit = resource.MustParse("1Mi")
	s.cfg.LocalStorageCapacityIsolation = true
	now.at(s, s.pass(0, control.Housekeeping, reading(3*gibi)))
	explain := func(pod string) []byte {
		t.Helper()
		e, found, err := p.Explain(t.Context(), pod)
		if err != nil || !found {
			t.Fatalf("%s: found %t, %v", pod, found, err)
		}
		return indented(t, e)
	}
	golden.Check(t, "testdata/explanation.json", explain(""))
	golden.Check(t, "testdata/explanation-b.json", explain("default/b"))
	if a, b := explain("b"), explain("uid-b"); !bytes.Equal(a, b) || !bytes.Equal(a, explain("default/b")) {
		t.Error("a pod's names do not find the same")
	}
	if _, found, err := p.Explain(t.Context(), "absent"); found || err != nil {
		t.Errorf("of a pod that does not exist: found %t, %v", found, err)
	}
	now.err = context.DeadlineExceeded
	if _, _, err := p.Explain(t.Context(), ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestTheListOfMetricsHasEvictds(t *testing.T) {
	p := newFixture(t, publish.Config{
		API: func() nodestatus.API { return nodestatus.API{} }, Runtime: func() nodestatus.Runtime { return nodestatus.Runtime{} },
		Preview: func() reclaim.Plan { return reclaim.Plan{} },
		Counters: publish.Counters{
			RecordsLost: func() uint64 { return 0 }, IntentsRefused: func() uint64 { return 0 }, JournalChanges: func() uint64 { return 0 }, JournalWritten: func() uint64 { return 0 },
			PodsWithoutCgroup: func() int { return 0 },
		},
		ConfigurationRefused: func() string { return "" },
	}, nil)
	golden.Section(t, "../../docs/metrics.md", "evictd", p.metrics.Table())
}

// rule: M.188
func TestAThresholdThatCannotBeEvaluatedForAMinuteIsAWarning(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	p := newFixture(t, publish.Config{Fault: func(signal eviction.Signal) error {
		if signal == eviction.NodeFsAvailable {
			return errors.New("statfs /data: no such file or directory")
		}
		return nil
	}}, now)
	lost := reading(3 * gibi)
	lost.NodeFs = stats.Filesystem{}
	warning := `level=WARN msg="a threshold cannot be evaluated: nothing is evicted for it" signal=nodefs.available for=1m0s because="statfs /data: no such file or directory"`
	p.publish(s.pass(0, control.Housekeeping, lost), s.pass(50*time.Second, control.Housekeeping, lost))
	if strings.Contains(p.log.String(), warning) {
		t.Errorf("warned before a minute:\n%s", p.log.String())
	}
	last := s.pass(60*time.Second, control.Housekeeping, lost)
	now.at(s, last)
	p.publish(last, s.pass(70*time.Second, control.Housekeeping, lost))
	if strings.Count(p.log.String(), warning) != 1 {
		t.Errorf("want one warning:\n%s", p.log.String())
	}
	for _, signal := range p.status().Signals {
		if want := signal.Name == "nodefs.available"; strings.HasPrefix(signal.Unmeasured, "statfs /data") != want {
			t.Errorf("%s is unmeasured because %q", signal.Name, signal.Unmeasured)
		}
	}
	p.publish(s.pass(80*time.Second, control.Housekeeping, reading(3*gibi)))
	if !strings.Contains(p.log.String(), `level=INFO msg="a threshold can be evaluated" signal=nodefs.available`) {
		t.Errorf("the end is not logged:\n%s", p.log.String())
	}
}
