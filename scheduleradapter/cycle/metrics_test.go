package cycle

import (
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/metric"
)

// TestMetricsHaveKubeSchedulersNames compares names, labels and buckets; measured
// durations are left out.
func TestMetricsHaveKubeSchedulersNames(t *testing.T) {
	withLoop(t, func(w *fixture) {
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
		w.do(func() { w.Queue.Activate(w.now(), "high") }) // its victims are not reported as deleted
		synctest.Wait()
		page := httptest.NewRecorder()
		w.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		measured := regexp.MustCompile(`(?m)^(scheduler_\w+_duration_seconds_(?:bucket|sum)\S*) .*$`)
		golden.Check(t, "testdata/metrics.txt", measured.ReplaceAll(page.Body.Bytes(), []byte("$1 measured")))
	})
}

func TestAnEndedLoopLeavesTheOtherMetrics(t *testing.T) {
	withLoop(t, func(w *fixture) {
		w.stop(nil)
		w.over <- <-w.over
		page := httptest.NewRecorder()
		w.metrics.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
		if text := page.Body.String(); strings.Contains(text, "scheduler_pending_pods") || !strings.Contains(text, "scheduler_pod_scheduling_attempts_count 0") {
			t.Errorf("an ended loop reports\n%s", text)
		}
	})
}

func TestTheListOfMetricsHasTheLoops(t *testing.T) {
	set := metric.NewSet()
	newMetrics(set, nil)
	golden.Section(t, "../../docs/metrics.md", "scheduling", set.Table())
}
