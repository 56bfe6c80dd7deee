package loop

import (
	"errors"
	"net/http/httptest"
	"regexp"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evictd/evictd/internal/golden"
)

// TestMetricsHaveKubeSchedulersNames holds names, labels and buckets; durations
// are those of the bubble, or of the machine and left out.
func TestMetricsHaveKubeSchedulersNames(t *testing.T) {
	inWorld(t, func(w *world) {
		failing := w.slow("failing")
		w.full()
		w.node("b")
		w.set("failing", cpu("100m"))
		failing <- errors.New("no answer")
		synctest.Wait()
		w.set("bound", cpu("500m"))
		w.set("large", cpu("3"))
		synctest.Wait()
		w.set("high", prioritized(10), cpu("2"))
		synctest.Wait()
		w.remove("one", on("a"))
		synctest.Wait()
		page := httptest.NewRecorder()
		promhttp.HandlerFor(w.registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		measured := regexp.MustCompile(`(?m)^(scheduler_\w+_duration_seconds_(?:bucket|sum)\S*) .*$`)
		golden.Check(t, "testdata/metrics.txt", measured.ReplaceAll(page.Body.Bytes(), []byte("$1 measured")))
	})
}

func TestALoopThatIsOverLeavesTheOtherMetrics(t *testing.T) {
	inWorld(t, func(w *world) {
		w.stop(nil)
		w.over <- <-w.over
		all, err := w.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, family := range all {
			if family.GetName() == "scheduler_pending_pods" {
				t.Error("an ended loop told of pending pods")
			}
		}
	})
}
