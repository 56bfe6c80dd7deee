package daemon

import (
	"testing"
	"time"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wire"
)

// reported is a runtime as an agent has reported it.
type reported struct{ *inventory.Snapshot }

func (r reported) Runtime() *inventory.Snapshot      { return r.Snapshot }
func (reported) Order(wire.Order, func(error)) error { return wire.ErrAway }

// rule: M.38
func TestARuntimeThatHasNotSaidWhereItsImagesAreIsAwaited(t *testing.T) {
	silent := &inventory.Snapshot{Runtime: inventory.Runtime{Endpoint: "unix:/run/x.sock", Connected: true}}
	known := &inventory.Snapshot{Runtime: silent.Runtime}
	known.ImageFs = []inventory.Filesystem{{Mountpoint: "/var/lib/x"}}
	now := time.Now()
	for name, c := range map[string]struct {
		has      *inventory.Snapshot
		endpoint RuntimeEndpoint
		begun    time.Time
		awaited  bool
	}{
		"before its first report":          {nil, "unix:/run/x.sock", now, true},
		"before it names a filesystem":     {silent, "unix:/run/x.sock", now, true},
		"it has named one":                 {known, "unix:/run/x.sock", now, false},
		"it takes too long":                {silent, "unix:/run/x.sock", now.Add(-runtimePatience - time.Second), false},
		"it has never answered":            {nil, "unix:/run/x.sock", now.Add(-runtimePatience - time.Second), false},
		"there is none, and none is found": {nil, noRuntime, now, false},
	} {
		got := awaitedRuntime{reported{c.has}, c.endpoint, c.begun}.Runtime()
		switch {
		case !c.awaited && got != c.has:
			t.Errorf("%s: %+v", name, got)
		case c.awaited && (got == nil || got.Connected || got.Endpoint != "unix:/run/x.sock" || !got.Since.Equal(c.begun)):
			t.Errorf("%s: %+v, want one that is down since the start", name, got)
		}
	}
}
