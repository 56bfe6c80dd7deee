package kill

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// caching is a pod whose page cache takes so long to be freed.
type caching struct {
	*fakePod
	takes time.Duration
	freed atomic.Bool
}

func (c *caching) FreeMemory(context.Context) error {
	time.Sleep(c.takes)
	c.freed.Store(true)
	return nil
}

// rule: M.167
func TestTheResultOfAPodWaitsForItsPageCache(t *testing.T) {
	for takes, waits := range map[time.Duration]time.Duration{0: 0, time.Second / 2: time.Second / 2, time.Minute: time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, k *Killer) {
				pod := &caching{fakePod: newFakePod(k, frail()), takes: takes}
				var ended time.Time
				since := start(t, k, Victim{UID: "a", Target: pod, Ended: func() { ended = time.Now() }})
				if r := wantAfter(t, k, since, waits, waits); r.Err != nil || !r.Gone.Equal(since) || !ended.Equal(since) {
					t.Errorf("result %+v, ended %v after the start", r, ended.Sub(since))
				}
				time.Sleep(takes)
				if !pod.freed.Load() {
					t.Error("it is not freed")
				}
			})
		})
	}
}
