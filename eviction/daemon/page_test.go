package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// passAt is a report of a pass that saw so much memory.
func passAt(at time.Time, memory int64) control.Report {
	r := control.Report{At: at, DryRun: true}
	r.Observations[eviction.MemoryAvailable].Available = stats.Known(memory)
	r.Node.MemoryStall = stats.Stall{Some: time.Second, Known: true}
	return r
}

func TestThePageBeginsWithWhatItHasMissed(t *testing.T) {
	h := newHistory()
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 1000 { // a pass a second
		h.Record(passAt(start.Add(time.Duration(i)*time.Second), int64(i)))
	}
	h.Record(control.Report{At: start})
	crossing := passAt(start.Add(1000*time.Second), 1000)
	crossing.Decisions = []eviction.Decision{{}}
	h.Record(crossing)
	said := func(since time.Time) string {
		text, err := json.Marshal(h.past(since).Data)
		require.NoError(t, err)
		return string(text)
	}
	const names = `{"signals":["memory.available","allocatableMemory.available","nodefs.available","nodefs.inodesFree","imagefs.available","imagefs.inodesFree","containerfs.available","containerfs.inodesFree","pid.available","swap.available","memory.stall"],`
	if got, want := said(start.Add(990*time.Second)), names+`"samples":[{"at":1767324045000,"available":[1000,null,null,null,null,null,null,null,null,null,null],"stalled":[1,null,null]}]}`; got != want {
		t.Errorf("since the last sample but one\n%s\nwant\n%s", got, want)
	}
	if got, want := said(crossing.At), names+`"samples":[]}`; got != want {
		t.Errorf("since the last\n%s\nwant\n%s", got, want)
	}
	if all := h.samples.All(); len(all) != samplesKept || all[0].at != start.Add(110*time.Second) {
		t.Errorf("%d samples are kept, the first of %v", len(all), all[0].at)
	}
}

func TestKeepingThePastAllocatesNothing(t *testing.T) {
	h := newHistory()
	at := time.Now()
	report := passAt(at, 1)
	if n := testing.AllocsPerRun(1000, func() {
		report.At = report.At.Add(sampleEvery)
		h.Record(report)
	}); n != 0 {
		t.Errorf("%.1f allocations a pass", n)
	}
}
