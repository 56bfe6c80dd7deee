package daemon

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/wire"
)

// hungContainers take a notice only once they are released.
type hungContainers struct {
	released chan struct{} // one for each notice
	mu       sync.Mutex
	sent     []string
}

func (h *hungContainers) send(s *eviction.StepAction) error {
	<-h.released
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, fmt.Sprint(s.Pod.UID, " over=", s.Over))
	return nil
}

func (h *hungContainers) StepTaken(*eviction.StepAction, error)  {}
func (h *hungContainers) AnnotationIgnored(wire.PodName, string) {}

func warning(uid int, over bool) *eviction.StepAction {
	return &eviction.StepAction{Pod: &eviction.Pod{UID: types.UID(fmt.Sprint(uid))}, Container: "c", Over: over}
}

func newHungContainers() (*hungContainers, *notices) {
	h := &hungContainers{released: make(chan struct{}, 1000)}
	return h, &notices{send: h.send, reports: h, log: slog.New(slog.DiscardHandler), containers: map[noticed]*delivery{}, faults: map[noticed]string{}}
}

// TestANoticeWaitsForThoseThatHang has as many containers hang as are served at a time. Two more containers get their last
// notice once the others no longer hang.
func TestANoticeWaitsForThoseThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, n := newHungContainers()
		for uid := range maxDelivering {
			n.begin(warning(uid, false))
		}
		n.begin(warning(1000, false))
		n.begin(warning(1001, false))
		n.begin(warning(1000, true))
		synctest.Wait()
		for range maxDelivering + 2 {
			h.released <- struct{}{}
		}
		synctest.Wait()
		if got := h.sent; len(got) != maxDelivering+2 || !slices.Contains(got, "1000 over=true") || !slices.Contains(got, "1001 over=false") {
			t.Errorf("delivered: %v", got)
		}
		if len(n.waiting) > 0 || n.running > 0 || len(n.containers) != maxDelivering+1 {
			t.Errorf("%d wait, %d are being delivered, %d containers have a warning", len(n.waiting), n.running, len(n.containers))
		}
	})
}

// TestTheEndOfEvictdEndsAWarningThatIsBeingDelivered has evictd stop while the containers hang. A warning that waits is
// not delivered any more.
func TestTheEndOfEvictdEndsAWarningThatIsBeingDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, n := newHungContainers()
		for uid := range maxDelivering {
			n.begin(warning(uid, uid%2 == 1))
		}
		n.begin(warning(1000, false))
		go n.end()
		synctest.Wait()
		close(h.released)
		synctest.Wait()
		over := 0
		for _, s := range h.sent {
			if s == "0 over=true" || s == "1 over=true" {
				over++
			}
		}
		if len(h.sent) != maxDelivering*3/2 || over != 2 || slices.Contains(h.sent, "1000 over=false") {
			t.Errorf("delivered: %v", h.sent)
		}
	})
}
