package publish_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

const (
	mebi = int64(1) << 20
	gibi = int64(1) << 30
)

var begun = time.Date(2026, 1, 2, 15, 4, 5, 123456000, time.UTC)

// reporter makes the reports of a loop with the real core, at given instants.
type reporter struct {
	cfg        *eviction.Config
	state      eviction.State
	candidates []eviction.Candidate
	at         time.Duration // since begun, of the last pass
	dryRun     bool
}

func newReporter() *reporter {
	cfg := eviction.New(eviction.Config{
		Thresholds: []eviction.Threshold{
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: gibi}},
			{Signal: eviction.MemoryAvailable, Value: eviction.Value{Amount: 2 * gibi}, Grace: time.Minute},
			{Signal: eviction.NodeFsAvailable, Value: eviction.Value{Fraction: 0.25}},
			{Signal: eviction.PIDAvailable, Value: eviction.Value{Amount: 1000}},
		},
		PressureTransitionPeriod: time.Minute, HardGrace: time.Second,
	}, eviction.SharedFs)
	return &reporter{cfg: &cfg, candidates: []eviction.Candidate{
		candidate("a", v1.PodQOSBestEffort, 700*mebi, ""),
		candidate("b", v1.PodQOSBurstable, 500*mebi, ""),
		candidate("c", v1.PodQOSGuaranteed, 900*mebi, eviction.StaticPod),
		{Pod: &eviction.Pod{UID: "uid-d", Namespace: "default", Name: "d", QOS: v1.PodQOSBestEffort}},
	}}
}

func candidate(name string, qos v1.PodQOSClass, used int64, protection eviction.Protection) eviction.Candidate {
	return eviction.Candidate{
		Pod: &eviction.Pod{
			UID: types.UID("uid-" + name), Namespace: "default", Name: name, QOS: qos, Priority: 10, Protection: protection, MemoryRequest: 600 * mebi,
			Containers: []eviction.Container{{Name: "main", MemoryRequest: resource.MustParse("600Mi")}},
		},
		Usage: &stats.Pod{
			Memory: stats.Known(used), Processes: stats.Known(3),
			Containers: []stats.Container{{Memory: stats.Known(used), Rootfs: stats.Known(mebi)}},
		},
	}
}

// reading is a node of 4 GiB with so much left, and a disk of 40 GiB.
func reading(available int64) stats.Node {
	return stats.Node{
		Memory: stats.Memory{Limit: stats.Known(4 * gibi), Usage: stats.Known(4*gibi - available + 100*mebi), InactiveFile: stats.Known(100 * mebi), ActiveFile: stats.Known(50 * mebi)},
		NodeFs: stats.Filesystem{Capacity: stats.Known(40 * gibi), Available: stats.Known(30 * gibi)},
	}
}

// pass is the report of one pass so long after the beginning.
func (s *reporter) pass(at time.Duration, source control.Source, node stats.Node, outcomes ...eviction.Outcome) control.Report {
	s.at = at
	now := begun.Add(at)
	node.Time = now.Add(-time.Millisecond)
	in := eviction.Input{Now: now, Signals: (&eviction.Observer{}).Observe(&node), Candidates: s.candidates, Sampled: true, Outcomes: outcomes}
	r := control.Report{At: now, Source: source, Node: node, Observations: in.Signals, Eviction: s.cfg, DryRun: s.dryRun,
		Passes: map[control.Source]int{source: 1}, Forecast: control.Forecast{Until: []time.Duration{time.Second, -1}, Grower: s.candidates[0].Pod, Growth: 12 * mebi}}
	for again := true; again; in.Pass, in.Outcomes = eviction.Continue, nil {
		var d eviction.Decision
		s.state, d = eviction.Decide(s.cfg, s.state, in)
		d.Explain()
		r.Decisions = append(r.Decisions, d)
		again = len(d.Reclaim) > 0
	}
	r.State = s.state
	return r
}

// fixedSnapshot is the result of Snapshot and Recent: the state of the node at a report, or an error.
type fixedSnapshot struct {
	seen control.Snapshot
	err  error
}

func (l *fixedSnapshot) at(s *reporter, r control.Report) {
	until := slices.Repeat([]time.Duration{-1}, len(r.Eviction.Thresholds))
	until[0], until[2] = 0, 12540*time.Millisecond
	l.seen = control.Snapshot{At: r.At, Node: r.Node, Observations: r.Observations, Forecast: control.Forecast{Until: until, Grower: s.candidates[0].Pod, Growth: 12 * mebi}, State: r.State, Candidates: s.candidates, Eviction: r.Eviction}
}

// Snapshot implements publish.Snapshots.
func (l *fixedSnapshot) Snapshot(context.Context) (control.Snapshot, error) { return l.seen, l.err }
func (l *fixedSnapshot) Recent(context.Context) (control.Snapshot, error)   { return l.seen, l.err }

// killed is the end of a kill: signalled and gone so long after the beginning.
func killed(uid types.UID, signalled, gone time.Duration) control.Report {
	return control.Report{At: begun.Add(gone), Ended: &kill.Result{UID: uid, Signalled: begun.Add(signalled), Gone: begun.Add(gone), Freed: stats.Known(690 * mebi)}}
}

// unkilled is a kill that failed.
func unkilled(uid types.UID, err error) control.Report {
	return control.Report{Ended: &kill.Result{UID: uid, Err: err}}
}

// reports are those of a node on which pod a is evicted and pressure ends.
func (s *reporter) reports() []control.Report {
	return []control.Report{
		s.pass(0, control.Housekeeping, reading(3*gibi)),
		s.pass(12*time.Second, control.Poll, reading(900*mebi)),
		killed("uid-a", 12010*time.Millisecond, 12500*time.Millisecond),
		s.pass(12501*time.Millisecond, control.VictimGone, reading(3*gibi), eviction.Outcome{UID: "uid-a"}),
		s.pass(80*time.Second, control.Housekeeping, reading(3*gibi)),
	}
}

// fixture is a publisher with its log and its metrics.
type fixture struct {
	*publish.Publisher
	*testing.T
	log     bytes.Buffer
	metrics *metric.Set
}

func newFixture(t *testing.T, cfg publish.Config, snapshot *fixedSnapshot) *fixture {
	p := &fixture{T: t, metrics: metric.NewSet()}
	timeless := func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	cfg.Node = "node-1"
	p.Publisher = publish.New(cfg, snapshot, p.metrics, slog.New(slog.NewTextHandler(&p.log, &slog.HandlerOptions{ReplaceAttr: timeless})))
	return p
}

// publish publishes the reports, all of them before it returns.
func (p *fixture) publish(reports ...control.Report) {
	queue := make(chan control.Report, len(reports))
	for _, r := range reports {
		queue <- r
	}
	close(queue)
	p.Publisher.Run(queue)
}

// page is the metrics page.
func (p *fixture) page() string {
	w := httptest.NewRecorder()
	p.metrics.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// hasSeries fails the test if the page lacks one of the series, with its value.
func (p *fixture) hasSeries(series ...string) {
	p.Helper()
	page := "\n" + p.page()
	for _, s := range series {
		if !strings.Contains(page, "\n"+s+"\n") {
			p.Errorf("the metrics have no %q:\n%s", s, page)
		}
	}
}

func (p *fixture) status() nodestatus.Status {
	p.Helper()
	status, err := p.Status(p.Context())
	require.NoError(p, err)
	return status
}

// indented is a document as people read it.
func indented(t *testing.T, document any) []byte {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(document))
	return text.Bytes()
}
