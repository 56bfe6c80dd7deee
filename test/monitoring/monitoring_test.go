// Package monitoring holds the alerts and dashboards of deploy against Prometheus'
// own parser and engine, and against the metrics that there are. It is a module of
// its own, for Prometheus is large.
package monitoring

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// The folders of what is tested.
const (
	deploy = "../../deploy/"
	docs   = "../../docs/"
)

var promql = parser.NewParser(parser.Options{})

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// each runs a test for every file of deploy that a pattern means.
func each(t *testing.T, pattern string, test func(t *testing.T, name string)) {
	files, err := filepath.Glob(deploy + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file is %s: %v", pattern, err)
	}
	for _, file := range files {
		name, _ := filepath.Rel(deploy, file)
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) { test(t, name) })
	}
}

// target are labels that Prometheus or its configuration gives to every series.
var target = []string{"cluster", "instance", "job"}

// documented are the series of docs/metrics.md, and up, with their labels.
func documented(t *testing.T) map[string][]string {
	series := map[string][]string{"up": nil}
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\|")
	for _, cells := range row.FindAllStringSubmatch(read(t, docs+"metrics.md"), -1) {
		name, kind := cells[1], cells[2]
		var own []string
		for _, label := range regexp.MustCompile(`\w+`).FindAllString(cells[3], -1) {
			own = append(own, label)
		}
		switch kind {
		case "histogram":
			series[name+"_bucket"] = append([]string{"le"}, own...)
			fallthrough
		case "summary":
			series[name+"_sum"], series[name+"_count"] = own, own
		default:
			series[name] = own
		}
	}
	if len(series) < 100 {
		t.Fatalf("docs/metrics.md has %d series: is the table read as it is written?", len(series))
	}
	return series
}

// check parses an expression, and holds its series and labels to those there are.
func check(t *testing.T, series map[string][]string, text string) {
	t.Helper()
	expr, err := promql.ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	known := slices.Clone(target)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			own, exists := series[v.Name]
			if !exists {
				t.Errorf("%s: docs/metrics.md has no %s", text, v.Name)
			}
			known = append(known, own...)
			for _, m := range v.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(own, m.Name) && !slices.Contains(target, m.Name) {
					t.Errorf("%s: %s has no label %s", text, v.Name, m.Name)
				}
			}
		}
		return nil
	})
	used := func(names []string) {
		for _, name := range names {
			if !slices.Contains(known, name) {
				t.Errorf("%s: no series here has a label %s", text, name)
			}
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			used(n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used(slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include))
			}
		}
		return nil
	})
}

// alerts are the rules of a file, which Prometheus finds no fault with.
func alerts(t *testing.T, name string) (all []rulefmt.Rule) {
	t.Helper()
	groups, faults := rulefmt.ParseFile(deploy+name, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	for _, fault := range faults {
		t.Error(fault)
	}
	if groups == nil {
		t.FailNow()
	}
	for _, group := range groups.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

func TestAlertsAskForWhatThereIsAndSayWhatToDo(t *testing.T) {
	series := documented(t)
	headings := regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, docs+"troubleshooting.md"), -1)
	each(t, "alerts/*.yaml", func(t *testing.T, name string) {
		for _, rule := range alerts(t, name) {
			check(t, series, rule.Expr)
			for _, annotation := range []string{"summary", "description"} {
				if rule.Annotations[annotation] == "" {
					t.Errorf("%s has no %s", rule.Alert, annotation)
				}
			}
			if !slices.Contains([]string{"info", "warning", "critical"}, rule.Labels["severity"]) {
				t.Errorf("%s has severity %q", rule.Alert, rule.Labels["severity"])
			}
			if want := "https://github.com/evictd/evictd/blob/main/docs/troubleshooting.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
				t.Errorf("%s has runbook_url %s, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
			}
			if !slices.ContainsFunc(headings, func(h []string) bool { return h[1] == rule.Alert }) {
				t.Errorf("docs/troubleshooting.md has no heading %s", rule.Alert)
			}
		}
	})
}

// dashboard is what is looked at of one.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct {
		List []struct{ Expr string }
	}
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ UID string }
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct{ Expr string }
}

func (p *panel) overlaps(o *panel) bool {
	a, b := p.GridPos, o.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

func TestDashboardsAskForWhatThereIs(t *testing.T) {
	series := documented(t)
	uids := map[string]bool{}
	each(t, "dashboards/*.json", func(t *testing.T, name string) {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, deploy+name)), &d); err != nil {
			t.Fatal(err)
		}
		if d.UID == "" || uids[d.UID] || d.Title == "" || d.SchemaVersion < 40 {
			t.Errorf("uid %q, title %q, schema %d", d.UID, d.Title, d.SchemaVersion)
		}
		uids[d.UID] = true
		// What Grafana puts in the place of its own variables; those of the
		// dashboard stand in strings.
		concrete := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h")
		for _, v := range d.Templating.List {
			if asks := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition); asks != nil {
				check(t, series, "count by ("+asks[2]+") ("+asks[1]+")")
			} else if v.Type != "datasource" {
				t.Errorf("variable %s asks %q", v.Name, v.Definition)
			}
		}
		for _, a := range d.Annotations.List {
			check(t, series, concrete.Replace(a.Expr))
		}
		for i := range d.Panels {
			p := &d.Panels[i]
			for j := range d.Panels[:i] {
				if o := &d.Panels[j]; o.ID == p.ID || p.overlaps(o) {
					t.Errorf("%q and %q have one id or place", p.Title, o.Title)
				}
			}
			if p.Type != "row" && (p.Title == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
				t.Errorf("panel %d, %q, asks %q for %d", p.ID, p.Title, p.Datasource.UID, len(p.Targets))
			}
			for _, target := range p.Targets {
				check(t, series, concrete.Replace(target.Expr))
			}
		}
	})
}
