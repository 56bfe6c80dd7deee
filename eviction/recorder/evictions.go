package recorder

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/nodestatus"
)

// Eviction is an eviction as it is kept for weeks, once for each pod and evictor: a dry run
// decides for a pod again as long as it runs.
type Eviction struct {
	By  string    `json:"by"`
	Pod string    `json:"pod"` // namespace/name
	UID types.UID `json:"uid"`
	// Signal is that of evictd, and Resource the kubelet's name of what was short.
	Signal   string          `json:"signal,omitempty"`
	Resource string          `json:"resource"`
	At       nodestatus.Time `json:"at"` // of the kubelet to the second
	DryRun   bool            `json:"dryRun,omitempty"`
}

// Evictors.
const (
	ByEvictd  = "evictd"
	ByKubelet = "kubelet"
)

// History are the evictions since an instant, in the order in which they were recorded.
type History struct {
	Since     nodestatus.Time `json:"since"`
	Evictions []Eviction      `json:"evictions,omitempty"`
}

const (
	// keptEvictions are the last that are kept, each in less than 640 bytes.
	keptEvictions = 500
	// Each of two segments begins with all that is kept, so that the other can be overwritten.
	evictionSegments     = 2
	evictionSegmentBytes = 1 << 20
)

// evictions keeps them in a ring of their own, which lasts for weeks. Any goroutine may call announce; the
// goroutine of the recorder calls the other methods.
type evictions struct {
	mu        sync.Mutex
	announced []Eviction

	ring  ring // nil before it is open
	kept  History
	known map[identity]bool
	// behind says that what is kept has to be written as a whole, after retry.
	behind bool
	retry  time.Time
}

// identity is what is kept once.
type identity struct {
	by  string
	uid types.UID
}

func (e *Eviction) identity() identity { return identity{e.By, e.UID} }

// announce has an eviction kept with the next report.
func (e *evictions) announce(of Eviction) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.announced) < keptEvictions { // the others are announced again by the next agent
		e.announced = append(e.announced, of)
	}
}

// take keeps the evictions of a report, and what was announced. After an error it does not touch the
// disk for retryAfter; what it has kept in memory meanwhile is written then.
func (e *evictions) take(dir string, report *control.Report) error {
	waits := report.At.Before(e.retry)
	if dir == "" || e.ring == nil && waits {
		return nil
	}
	var err error
	if e.ring == nil {
		err = e.open(dir, report.At)
	}
	if err == nil {
		err = e.keepAll(report)
	}
	if err == nil && e.behind && !waits {
		err = e.begin(e.ring)
		e.behind = err != nil
	}
	if err != nil {
		e.retry = report.At.Add(retryAfter)
	}
	return err
}

// keepAll keeps what is new, in memory where the disk is behind.
func (e *evictions) keepAll(report *control.Report) (err error) {
	for i := range report.Decisions {
		for _, decided := range report.Decisions[i].Evictions {
			err = errors.Join(err, e.keep(Eviction{
				By: ByEvictd, Pod: decided.Pod.String(), UID: decided.Pod.UID, Signal: decided.Signal.String(), Resource: string(decided.Signal.Resource()),
				At: nodestatus.Time{Time: report.At}, DryRun: report.DryRun,
			}))
		}
	}
	e.mu.Lock()
	announced := e.announced
	e.announced = nil
	e.mu.Unlock()
	for i := range announced {
		err = errors.Join(err, e.keep(announced[i]))
	}
	return err
}

// open continues what is in a directory, or begins at an instant.
func (e *evictions) open(dir string, at time.Time) error {
	kept, err := ReadEvictions(dir)
	if err != nil {
		return err
	}
	if kept.Since.IsZero() {
		kept.Since.Time = at
	}
	ring, err := journal.OpenRing(dir, evictionSegments, evictionSegmentBytes)
	if err != nil {
		return err
	}
	e.kept, e.known = kept, map[identity]bool{}
	for i := range kept.Evictions {
		e.known[kept.Evictions[i].identity()] = true
	}
	if err := e.begin(ring); err != nil {
		return err
	}
	e.ring = ring
	return nil
}

// begin begins a segment with all that is kept.
func (e *evictions) begin(ring ring) error {
	key, err := json.Marshal(&e.kept)
	if err == nil {
		err = ring.Begin(key)
	}
	return err
}

// keep adds an eviction, unless it is known already, or older than all that are kept. A pod that evictd
// has evicted is not an eviction by the kubelet, whatever the API server shows.
func (e *evictions) keep(of Eviction) error {
	if of.At.Before(e.kept.Since.Time) || e.known[of.identity()] || of.By == ByKubelet && e.carriedOut(of.UID) {
		return nil
	}
	e.known[of.identity()] = true
	if dropped := e.kept.add(of); dropped != nil {
		delete(e.known, dropped.identity())
	}
	if e.behind {
		return nil
	}
	record, err := json.Marshal(&of)
	if err == nil && e.ring.Left() < int64(len(record)) {
		err = e.begin(e.ring)
	} else if err == nil {
		err = e.ring.Append(record, of.By == ByEvictd) // the kubelet's are announced again
	}
	e.behind = err != nil
	return err
}

// add adds an eviction, and returns what is dropped for it; nil for nothing.
func (h *History) add(of Eviction) (dropped *Eviction) {
	if len(h.Evictions) == keptEvictions {
		dropped = new(h.Evictions[0])
		h.Since = dropped.At
		h.Evictions = slices.Delete(h.Evictions, 0, 1)
	}
	h.Evictions = append(h.Evictions, of)
	return dropped
}

// carriedOut says whether evictd has evicted a pod.
func (e *evictions) carriedOut(uid types.UID) bool {
	return e.known[identity{ByEvictd, uid}] && slices.ContainsFunc(e.kept.Evictions, func(k Eviction) bool {
		return k.By == ByEvictd && k.UID == uid && !k.DryRun
	})
}

// ReadEvictions reads what a recorder has kept in a directory; nothing was kept where Since is zero.
func ReadEvictions(dir string) (h History, err error) {
	segments, err := journal.ReadRing(dir)
	if err != nil {
		return h, fmt.Errorf("read evictions: %w", err)
	}
	for _, s := range slices.Backward(segments) {
		if json.Unmarshal(s.Key, &h) != nil {
			continue // it was not written whole
		}
		for _, text := range s.Records {
			var e Eviction
			if json.Unmarshal(text, &e) == nil {
				h.add(e)
			}
		}
		break
	}
	return h, nil
}
