package publish

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/gc"
	"github.com/evictd/evictd/eviction/reclaim"
	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

// collections are the metrics of removed containers and images.
type collections struct {
	kubeletImages, removed, failed, faults *prometheus.CounterVec
	expected, freed                        *prometheus.CounterVec
	duration                               *prometheus.HistogramVec
}

func newCollections(set *metric.Set) *collections {
	own := set.Of(metric.Own, metric.Alpha)
	c := &collections{
		kubeletImages: set.Of(metric.Kubelet, metric.Alpha).Counter("kubelet_image_garbage_collected_total", "Images removed, by reason: age or space.", "reason"),
		removed:       own.Counter("evictd_reclaim_removed_total", "Dead containers, sandboxes and unused images removed, by kind and reason.", "kind", "reason"),
		failed:        own.Counter("evictd_reclaim_failures_total", "Containers, sandboxes and images that could not be removed, by kind.", "kind"),
		faults:        own.Counter("evictd_reclaim_faults_total", "Collections that did not reach their goal, by reason.", "reason"),
		expected:      own.Counter("evictd_reclaim_expected_bytes_total", "Bytes that removals were expected to free, by occasion; images count shared layers.", "occasion"),
		freed:         own.Counter("evictd_reclaim_freed_bytes_total", "Bytes that disks gained during removals, by occasion.", "occasion"),
		duration: own.Histogram("evictd_reclaim_duration_seconds", "Duration of collections that removed something or failed, by occasion.",
			prometheus.ExponentialBuckets(0.01, 2, 14), "occasion"),
	}
	for _, reason := range gc.Reasons() {
		c.faults.WithLabelValues(string(reason)) // starts at 0
	}
	return c
}

// Collected reports a collection; one with the result of the last by metrics alone. It may be called from any goroutine.
func (p *Publisher) Collected(r gc.Report) {
	words := []any{
		"for", string(r.Trigger), "signal", r.Signal.String(), "need", bytesOf(r.Need.Bytes), "needInodes", r.Need.Inodes, "removed", names(r.Removed), "logs", r.Logs,
		"expected", bytesOf(r.Expected), "freed", bytesOf(r.Freed), "freedInodes", r.FreedInodes, "suffices", !r.Insufficient, "took", r.Ended.Sub(r.Begun).String(),
	}
	if r.DryRun {
		p.log.Info("would reclaim", words...)
		return
	}
	c, occasion := p.collections, string(r.Trigger)
	c.duration.WithLabelValues(occasion).Observe(r.Ended.Sub(r.Begun).Seconds())
	c.expected.WithLabelValues(occasion).Add(float64(r.Expected))
	c.freed.WithLabelValues(occasion).Add(float64(max(0, r.Freed)))
	for _, removal := range r.Removed {
		c.removed.WithLabelValues(removal.Kind.String(), removal.Why.String()).Inc()
		if removal.Kind == reclaim.KindImage {
			c.kubeletImages.WithLabelValues(removal.Why.String()).Inc()
		}
	}
	for _, f := range r.Failed {
		c.failed.WithLabelValues(f.Kind.String()).Inc()
		p.log.Warn("could not remove a container, sandbox or image", "kind", f.Kind.String(), "id", f.ID, "name", f.Name, "error", f.Err)
	}
	for _, f := range r.Faults {
		c.faults.WithLabelValues(string(f.Reason)).Inc()
		if r.Repeated {
			continue
		}
		p.event(wire.Event{At: r.Ended, Type: v1.EventTypeWarning, Reason: string(f.Reason), Action: "Reclaiming", Note: f.Note})
	}
	if r.Repeated {
		return
	}
	if r.Error != nil {
		p.log.Warn("a reclaim was ended by an error", append(words, "error", r.Error)...)
		return
	}
	p.log.Info("reclaimed", words...)
}

func bytesOf(n int64) string { return eviction.NodeFsAvailable.Quantity(n) }

// named bounds the objects in one log line.
const named = 20

// names lists the removed objects with their reasons.
func names(removals []reclaim.Removal) string {
	var all []string
	for _, r := range removals[:min(named, len(removals))] {
		name := r.Name
		if name == "" {
			name = r.ID
		}
		all = append(all, r.Kind.String()+" "+name+" ("+r.Why.String()+")")
	}
	if len(removals) > named {
		all = append(all, "...")
	}
	return strings.Join(all, ", ")
}

// wholeKi rounds bytes down to whole KiB for quantities.
func wholeKi(bytes stats.Amount) stats.Amount {
	n, known := bytes.Get()
	if !known || n < 1024 {
		return bytes
	}
	return stats.Known(n &^ 1023)
}

// reclaimables adds to the status what would be removed from a disk under pressure, and
// which images and dead containers would be kept.
func reclaimables(status *nodestatus.Status, plan *reclaim.Plan) {
	for _, r := range plan.Removals {
		status.Reclaimable = append(status.Reclaimable, nodestatus.Reclaimable{
			Kind: r.Kind.String(), ID: r.ID, Name: r.Name, Pod: r.Pod, Why: r.Why.String(),
			WouldFree: text(eviction.NodeFsAvailable, wholeKi(r.Bytes)), WouldFreeInodes: text(eviction.NodeFsInodesFree, r.Inodes),
		})
	}
	for _, k := range plan.Kept {
		if k.Kind == reclaim.KindImage || k.Kind == reclaim.KindContainer && k.Why != reclaim.Running {
			status.Unreclaimable = append(status.Unreclaimable, nodestatus.Reclaimable{Kind: k.Kind.String(), ID: k.ID, Name: k.Name, Pod: k.Pod, Why: k.Why.String()})
		}
	}
}

// text is an amount in the signal's unit, "" where it is not known.
func text(s eviction.Signal, amount stats.Amount) string {
	if n, known := amount.Get(); known {
		return s.Quantity(n)
	}
	return ""
}

// reclaiming are the running reclaims.
func reclaiming(s *control.Snapshot) []nodestatus.Reclaiming {
	var all []nodestatus.Reclaiming
	for _, r := range s.State.Reclaims {
		if !r.Since.IsZero() {
			all = append(all, nodestatus.Reclaiming{Signal: r.For.String(), Since: nodestatus.Time{Time: r.Since}})
		}
	}
	return all
}
