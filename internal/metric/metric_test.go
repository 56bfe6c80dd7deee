package metric

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
)

func TestAMetricIsInTheListBeforeItHasAValue(t *testing.T) {
	set := NewSet()
	own := set.Of(Own, Alpha)
	own.Counter("b_bytes_total", "Counted.", "kind")
	asked := own.AskedGauge("a_seconds", "Asked.")
	sums := own.AskedSummary("c", "Sums.", "of")
	value := 1.0
	set.Ask(func(into chan<- prometheus.Metric) {
		into <- asked.Is(value)
		into <- sums.Sums(2, 3.5, "x")
	}, asked, sums)
	value = 7
	_, rows, _ := strings.Cut(set.Table(), "|---|\n")
	if want := "| `a_seconds` | gauge |  | s | Asked. | own | alpha |\n" +
		"| `b_bytes_total` | counter | `kind` | bytes | Counted. | own | alpha |\n" +
		"| `c` | summary | `of` |  | Sums. | own | alpha |\n"; rows != want {
		t.Errorf("the list is\n%s\nwant\n%s", rows, want)
	}
	page := httptest.NewRecorder()
	set.Handler().ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if got, want := page.Body.String(), "# HELP a_seconds Asked.\n# TYPE a_seconds gauge\na_seconds 7\n"+
		"# HELP c Sums.\n# TYPE c summary\nc_sum{of=\"x\"} 3.5\nc_count{of=\"x\"} 2\n"; got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}

// TestTheListOfMetricsHasTheProcess takes what the client library knows for what it
// says at once.
func TestTheListOfMetricsHasTheProcess(t *testing.T) {
	set := NewSet()
	set.AddProcess()
	gathered, err := set.registry.Gather()
	require.NoError(t, err)
	for _, g := range gathered {
		f := family{name: g.GetName(), help: g.GetHelp(), kind: strings.ToLower(g.GetType().String()), owner: Library, stability: Stable}
		for _, l := range g.GetMetric()[0].GetLabel() {
			f.labels = append(f.labels, l.GetName())
		}
		set.families = append(set.families, f)
	}
	golden.Section(t, "../../docs/metrics.md", "process", set.Table())
}
