package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/page"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// hostile is a name that markup would make something of.
const hostile = `default/<img src=x onerror="document.body.dataset.caught=1"><b>bold</b>`

// feed serves the page of a program, whose folder it is given, with what a test has
// it show; whatever is asked about a pod has the answer. It returns the address.
func feed(t *testing.T, folder string, answer any, past page.Event, now ...page.Event) string {
	t.Helper()
	files := filepath.Join("..", "..", folder)
	if _, err := os.Stat(filepath.Join(files, "web", "index.html")); err != nil {
		t.Fatal(err)
	}
	p := page.New(os.DirFS(files), page.Feed{
		History: func(time.Time) page.Event { return past },
		Current: func(context.Context) ([]page.Event, error) { return now, nil },
	})
	mux := http.NewServeMux()
	p.Handle(mux)
	say := func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(answer) }
	mux.HandleFunc("GET /v1/explain", say)
	mux.HandleFunc("GET /v1/why", say)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	require.Running(t, func(ctx context.Context) error { p.Run(ctx); return nil })
	return strings.TrimPrefix(server.URL, "http://")
}

// mustBeText opens a pod of that name, and its story, in a page that shows markup.
func mustBeText(t *testing.T, p *tab, pod string) {
	t.Helper()
	p.see("the hostile pod", fmt.Sprintf("document.querySelector(%q)?.textContent === %q", pod, hostile))
	p.click(pod)
	p.see("its story", `document.querySelector("dialog .body")?.textContent.includes("<b>bold</b>")`)
	p.shoot("dialog")
	p.click("dialog .icon")
	p.see("no markup of it", `!document.querySelector("dialog") && !document.body.dataset.caught && !document.querySelector("b b, td b b, img[src=x]")`)
	p.shoot("page")
	p.scheme("dark")
	p.shoot("dark")
	p.narrow()
	p.shoot("phone")
}

// TestABusyNodeWithHostileNames shows what a node of many pods may come to.
func TestABusyNodeWithHostileNames(t *testing.T) {
	browser := openBrowser(t)
	at := time.Now()
	threshold := func(kind, quantity string) nodestatus.ThresholdStatus {
		return nodestatus.ThresholdStatus{Kind: kind, Quantity: quantity}
	}
	soon, later, never := 47.3, 600.0, 20000.0
	status := nodestatus.Status{
		Node: "worker-eu-west-1a-0042", Mode: nodestatus.Backstop, Time: nodestatus.Time{Time: at},
		Signals: []nodestatus.SignalStatus{
			{Name: "memory.available", Available: "1310Mi", Capacity: "32Gi", SecondsToThreshold: &soon, Thresholds: []nodestatus.ThresholdStatus{threshold("hard", "500Mi"), {Kind: "soft", Quantity: "1536Mi", Met: true}}},
			{Name: "nodefs.available", Available: "61Gi", Capacity: "200Gi", SecondsToThreshold: &later, Thresholds: []nodestatus.ThresholdStatus{threshold("hard", "20Gi")}},
			{Name: "nodefs.inodesFree", Available: "11000k", Capacity: "13107200", SecondsToThreshold: &never, Thresholds: []nodestatus.ThresholdStatus{threshold("hard", "655360")}},
			{Name: "imagefs.available", Available: "18Gi", Capacity: "100Gi", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "15Gi"}, threshold("soft", "20Gi")}},
			{Name: "imagefs.inodesFree", Thresholds: []nodestatus.ThresholdStatus{threshold("hard", "5%")}},
			{Name: "pid.available", Available: "31544", Capacity: "32768", Thresholds: []nodestatus.ThresholdStatus{threshold("hard", "2000")}},
		},
		Conditions: []nodestatus.ConditionStatus{{Type: "MemoryPressure", Status: "True", Reason: "Evictd"}, {Type: "DiskPressure", Status: "False"}, {Type: "PIDPressure", Status: "False"}},
		Taints:     []string{"evictd.io/memory-pressure:NoSchedule"},
		Ranking:    map[string][]nodestatus.Ranked{},
		Growing:    &nodestatus.Growing{Pod: hostile, UID: "0", PerSecond: "17Mi"},
		API:        &nodestatus.API{Connected: true},
	}
	for i := range 24 {
		r := nodestatus.Ranked{Pod: fmt.Sprintf("shop/checkout-7d9f8b6c5-%05d", 7919*i%99991), UID: types.UID(fmt.Sprint(i)), QOSClass: v1.PodQOSBurstable, Priority: int32(i) * 100,
			Usage: fmt.Sprintf("%dMi", 1400-53*i), Request: fmt.Sprintf("%dMi", 600+20*i), WouldFree: fmt.Sprintf("%dMi", 1400-53*i), Exceeds: i < 9, Because: "uses more above its request"}
		if i == 0 {
			r.Pod = hostile
		}
		if i > 20 {
			r.Protected, r.Because = "static pod", ""
		}
		status.Ranking["memory.available"] = append(status.Ranking["memory.available"], r)
	}
	for i, ago := range []time.Duration{11 * time.Minute, 4 * time.Minute, 3*time.Minute + 40*time.Second} {
		decided := at.Add(-ago)
		status.Evictions = append(status.Evictions, nodestatus.Eviction{Pod: fmt.Sprintf("shop/batch-%d", i), UID: types.UID(fmt.Sprint("e", i)), Signal: "memory.available", Freed: "812Mi",
			Decided: nodestatus.Time{Time: decided}, Gone: nodestatus.Time{Time: decided.Add(time.Second)}, Because: "uses 812Mi and requested 100Mi; shop/web is within its request"})
	}
	for i := range 5 {
		status.Reclaimable = append(status.Reclaimable, nodestatus.Reclaimable{Kind: "image", ID: fmt.Sprint("sha256:", i), Name: fmt.Sprintf("registry.example/app:v%d", i), Why: "unused for 3 days", WouldFree: "410Mi"})
	}
	type sample struct {
		At        int64     `json:"at"`
		Available []int64   `json:"available"`
		Stalled   []float64 `json:"stalled"`
	}
	var samples []sample
	stalled := 0.0
	for i := range 90 {
		free := 9000 + 2500*math.Sin(float64(i)/9) - 60*float64(i)
		if i > 74 {
			free = 4100 - 180*float64(i-74)
		}
		stalled += max(0, float64(i-70)) / 12
		samples = append(samples, sample{at.Add(time.Duration(i-90) * 10 * time.Second).UnixMilli(), []int64{int64(free) << 20, 61 << 30}, []float64{stalled, stalled / 3, float64(i) * 0.4}})
	}
	address := feed(t, "eviction/daemon",
		nodestatus.Explanation{Signals: []nodestatus.SignalForecast{{Signal: "memory.available", Kind: "soft", Required: "1536Mi", Available: "1310Mi", Lacking: "226Mi", Victims: []string{hostile}, Freed: "1400Mi", Suffices: true,
			Order: []nodestatus.ExplainedPod{{Ranked: status.Ranking["memory.available"][0], Place: 1, Goes: true, Against: "shop/<b>bold</b>", Rival: "shop/web",
				Comparisons: []nodestatus.Comparison{{Key: "above its request", This: "yes", Other: "yes"}, {Key: "priority", This: "0", Other: "100", Decides: true}},
				Changes:     []nodestatus.Change{{Of: "priority", From: "0", To: "101"}}}}}}, Limits: []nodestatus.PodLimit{}},
		page.Event{Name: "past", Data: map[string]any{"signals": []string{"memory.available", "nodefs.available"}, "samples": samples}},
		page.Event{Name: "status", Data: map[string]any{"status": status, "version": "v1.2.3"}})
	p := openTab(t, browser, address)
	p.scheme("light")
	p.see("the past at once", `document.querySelector("#chart .curve")?.getAttribute("d").split("L").length > 60`)
	p.see("the time that is left", `/500 MiB is reached in 47 s/.test(document.querySelector("#outlook").textContent) && document.querySelector("#chart .ahead")`)
	p.see("a warning of what is near, and nothing of what is far", `[...document.querySelectorAll("#signals b.note")].map((b) => b.className + " " + b.textContent).join() === "note bad 47 s left,note dim 10 min left"`)
	p.see("every eviction as a mark", `document.querySelectorAll("#chart .mark").length === 3`)
	mustBeText(t, p, "#pods .link")
}

// TestALargeClusterWithHostileNames shows what a scheduler of many nodes may come to.
func TestALargeClusterWithHostileNames(t *testing.T) {
	browser := openBrowser(t)
	at := time.Now()
	var nodes []cycle.NodeSummary
	for i := range 600 {
		n := cycle.NodeSummary{Name: fmt.Sprintf("worker-%03d", i), Kind: cycle.NodeOK, Ready: i%151 != 3, Levels: map[string]string{"memory.available": "ok"}, Given: cycle.Given{CPU: [2]int64{1000, 8000}, Memory: [2]int64{1 << 30, 16 << 30}, Pods: [2]int64{12, 110}}}
		if level := map[int]string{7: "hard", 11: "soft", 13: "tight"}[i%60]; level != "" {
			n.Levels["memory.available"], n.Kind = level, cycle.NodeKind(level)
		}
		if !n.Ready {
			n.Kind = cycle.NodeUnready
		}
		nodes = append(nodes, n)
	}
	var figures []map[string]any
	for i := range 180 {
		attempts := i * 45
		figures = append(figures, map[string]any{
			"at": at.Add(time.Duration(i-180) * 5 * time.Second).UnixMilli(), "pending": map[string]int{"active": int(math.Abs(30 * math.Sin(float64(i)/20))), "backoff": i % 17, "unschedulable": 12 + i/30, "gated": 2},
			"attempts": map[string]int{"scheduled": attempts + int(25*math.Sin(float64(i)/8)), "unschedulable": attempts / 9, "error": i / 60},
			"bounds":   []float64{0.001, 0.002, 0.004, 0.008, 0.016}, "durations": []int{attempts / 2, attempts * 4 / 5, attempts * 19 / 20, attempts * 199 / 200, attempts},
		})
	}
	waits := []cycle.PendingPod{{Pod: hostile, Place: "unschedulable", Since: at.Add(-time.Hour), Attempts: 12, Message: "0/600 nodes are available: 600 <b>bold</b>."}}
	for i := range 12 {
		waits = append(waits, cycle.PendingPod{Pod: fmt.Sprintf("shop/analytics-%d", i), Place: "backoff", Since: at.Add(-time.Minute), Attempts: i, Message: "0/600 nodes are available: 590 Insufficient memory, 10 node(s) had untolerated taint(s)."})
	}
	address := feed(t, "scheduleradapter/statuspage", cycle.Explanation{Pod: hostile, Nodes: 600, Refused: []cycle.Refused{{Plugin: "<b>bold</b>", Reasons: []string{"<i>no</i>"}, Count: 600, Nodes: []string{}}}, Nearest: []cycle.Near{}, Best: []cycle.Scored{}},
		page.Event{Name: "figures", Data: figures},
		page.Event{Name: "overview", Data: map[string]any{"at": at.UnixMilli(), "standing": "schedules", "placed": 7213, "pending": 13, "nodes": 600, "kinds": map[string]int{"ok": 567, "hard": 10, "soft": 9, "tight": 10, "unready": 4}}},
		page.Event{Name: "pending", Data: waits}, page.Event{Name: "nodes", Data: nodes})
	p := openTab(t, browser, address)
	p.scheme("light")
	p.see("every node", `document.querySelectorAll("#nodes.small .cell").length === 600`)
	mustBeText(t, p, "#pending .link")
}
