package publish_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/publish"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// rule: 9.19
// rule: M.101
func TestACollectionIsReportedByLogMetricsAndEvents(t *testing.T) {
	client := &keptEvents{}
	p := newFixture(t, publish.Config{Preview: func() reclaim.Plan { return reclaim.Plan{} }, Cluster: client}, nil)
	r := gc.Report{
		Trigger: gc.Pressure, Signal: eviction.ImageFsAvailable, Begun: begun, Ended: begun.Add(2 * time.Second),
		Need: eviction.Need{Bytes: gibi},
		Removed: []reclaim.Removal{
			{Kind: reclaim.KindContainer, ID: "c1", Name: "main", Why: reclaim.PodGone},
			{Kind: reclaim.KindImage, ID: "i1", Name: "example.org/app:1", Why: reclaim.Space, Bytes: stats.Known(gibi)},
		},
		Failed:   []gc.Failure{{Removal: reclaim.Removal{Kind: reclaim.KindImage, ID: "i2", Name: "example.org/other:1"}, Err: errors.New("it is used")}},
		Expected: gibi, Freed: 512 * mebi, Insufficient: true,
		Faults: []gc.Fault{{Reason: gc.FreeDiskSpaceFailed, Note: "the disk lacks 512Mi"}},
	}
	rehearsed := r
	rehearsed.DryRun = true
	p.Collected(rehearsed)
	p.Collected(r)
	again := gc.Report{Trigger: r.Trigger, Signal: r.Signal, Faults: r.Faults, Repeated: true}
	p.Collected(again)
	p.hasSeries(
		`kubelet_image_garbage_collected_total{reason="space"} 1`,
		`evictd_reclaim_removed_total{kind="container",reason="pod-gone"} 1`,
		`evictd_reclaim_removed_total{kind="image",reason="space"} 1`,
		`evictd_reclaim_failures_total{kind="image"} 1`,
		`evictd_reclaim_faults_total{reason="FreeDiskSpaceFailed"} 2`,
		`evictd_reclaim_expected_bytes_total{occasion="pressure"} 1.073741824e+09`,
		`evictd_reclaim_freed_bytes_total{occasion="pressure"} 5.36870912e+08`,
		`evictd_reclaim_duration_seconds_sum{occasion="pressure"} 2`,
	)
	want := []wire.Event{{At: r.Ended, Type: "Warning", Reason: "FreeDiskSpaceFailed", Action: "Reclaiming", Note: "the disk lacks 512Mi"}}
	if !slices.Equal(client.events, want) {
		t.Errorf("events %v, want %v", client.events, want)
	}
	const line = ` for=pressure signal=imagefs.available need=1Gi needInodes=0 removed="container main (pod-gone), image example.org/app:1 (space)" logs=0 expected=1Gi freed=512Mi freedInodes=0 suffices=false took=2s` + "\n"
	wantLog := `level=INFO msg="would reclaim"` + line + `level=WARN msg="could not remove a container, sandbox or image" kind=image id=i2 name=example.org/other:1 error="it is used"` + "\n" + `level=INFO msg=reclaimed` + line
	if p.log.String() != wantLog {
		t.Errorf("the log says\n%s\nwant\n%s", p.log.String(), wantLog)
	}
}

// keptEvents is a client of the API server that keeps the events.
type keptEvents struct {
	events  []wire.Event
	resizes []wire.Resize
}

func (*keptEvents) SetConditions(wire.NodeConditions) {}
func (*keptEvents) Evict(wire.Intent)                 {}
func (t *keptEvents) Event(e wire.Event)              { t.events = append(t.events, e) }
func (t *keptEvents) Resize(r wire.Resize)            { t.resizes = append(t.resizes, r) }

func TestTheStatusShowsWhatADiskUnderPressureWouldLose(t *testing.T) {
	s, now := newReporter(), &fixedSnapshot{}
	preview := func() reclaim.Plan {
		return reclaim.Plan{
			Removals: []reclaim.Removal{{Kind: reclaim.KindImage, ID: "sha256:1", Name: "example.org/app:1", Why: reclaim.Space, Bytes: stats.Known(gibi)}},
			Kept: []reclaim.Kept{
				{Kind: reclaim.KindContainer, ID: "c1", Name: "main", Pod: "p", Why: reclaim.Running},
				{Kind: reclaim.KindContainer, ID: "c2", Name: "main", Pod: "p", Why: reclaim.WithinLimit},
				{Kind: reclaim.KindImage, ID: "sha256:2", Name: "example.org/app:2", Why: reclaim.InUse},
			},
		}
	}
	p := newFixture(t, publish.Config{Preview: preview}, now)
	r := s.pass(0, control.Housekeeping, reading(3*gibi))
	r.State.Reclaims[0] = eviction.Reclaim{Since: begun, For: eviction.NodeFsAvailable}
	now.at(s, r)
	status := p.status()
	if got, want := status.Reclaimable, []nodestatus.Reclaimable{{Kind: "image", ID: "sha256:1", Name: "example.org/app:1", Why: "space", WouldFree: "1Gi"}}; !slices.Equal(got, want) {
		t.Errorf("reclaimable is %v, want %v", got, want)
	}
	want := []nodestatus.Reclaimable{
		{Kind: "container", ID: "c2", Name: "main", Pod: "p", Why: "within-limit"},
		{Kind: "image", ID: "sha256:2", Name: "example.org/app:2", Why: "in-use"},
	}
	if !slices.Equal(status.Unreclaimable, want) {
		t.Errorf("unreclaimable is %v, want %v", status.Unreclaimable, want)
	}
	if got := status.Reclaiming; len(got) != 1 || got[0].Signal != "nodefs.available" || !got[0].Since.Equal(begun) {
		t.Errorf("reclaiming is %v", got)
	}
}
