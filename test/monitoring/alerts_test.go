package monitoring

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
	"go.yaml.in/yaml/v2"
)

// alertCase is series from minute to minute, in promtool's notation, and when an alert
// of theirs is quiet and when it fires, with which labels beside its severity.
type alertCase struct {
	Alert        string
	Series       map[string]string
	Quiet, Fires model.Duration
	Labels       map[string]string
}

// TestEveryAlertFiresWhenItShouldAndNotBefore evaluates it every minute, as
// Prometheus does.
func TestEveryAlertFiresWhenItShouldAndNotBefore(t *testing.T) {
	each(t, "alerts/*.yaml", func(t *testing.T, name string) {
		text, err := os.ReadFile("testdata/" + filepath.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		var cases []alertCase
		if err := yaml.UnmarshalStrict(text, &cases); err != nil {
			t.Fatal(err)
		}
		covered := map[string]bool{}
		rules := alerts(t, name)
		for _, p := range cases {
			covered[p.Alert] = true
			i := slices.IndexFunc(rules, func(r rulefmt.Rule) bool { return r.Alert == p.Alert })
			if i < 0 {
				t.Errorf("%s has no alert %s", name, p.Alert)
				continue
			}
			if got := firing(t, rules[i], p.Series, p.Quiet); len(got) > 0 {
				t.Errorf("%s fires at %s already: %q", p.Alert, p.Quiet, got)
			}
			if got, want := firing(t, rules[i], p.Series, p.Fires), []string{fmt.Sprint(p.Labels)}; !slices.Equal(got, want) {
				t.Errorf("%s at %s fires %q, want %q", p.Alert, p.Fires, got, want)
			}
		}
		for _, rule := range rules {
			if !covered[rule.Alert] {
				t.Errorf("no case shows when %s fires", rule.Alert)
			}
		}
	})
}

// firing are the labels of the alerts that fire at an instant.
func firing(t *testing.T, rule rulefmt.Rule, series map[string]string, instant model.Duration) []string {
	t.Helper()
	var load strings.Builder
	load.WriteString("load 1m\n")
	for name, values := range series {
		load.WriteString("  " + name + " " + values + "\n")
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer storage.Close()
	e := promqltest.NewTestEngine(t, false, 5*time.Minute, 1e6)
	since := map[string]time.Duration{}
	for at := time.Duration(0); ; at += time.Minute {
		query, err := e.NewInstantQuery(t.Context(), storage, nil, rule.Expr, time.Unix(0, 0).Add(at))
		if err != nil {
			t.Fatal(err)
		}
		samples, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatal(err)
		}
		active, fires := map[string]time.Duration{}, []string{}
		for _, sample := range samples {
			key := labelsOf(sample)
			active[key] = at
			if before, was := since[key]; was {
				active[key] = before
			}
			if at-active[key] >= time.Duration(rule.For) {
				fires = append(fires, key)
			}
		}
		query.Close()
		since = active
		if at >= time.Duration(instant) {
			slices.Sort(fires)
			return fires
		}
	}
}

// labelsOf are those that a query leaves, as fmt writes a map.
func labelsOf(s engine.Sample) string {
	left := s.Metric.Map()
	delete(left, "__name__")
	return fmt.Sprint(left)
}
