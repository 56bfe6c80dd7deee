package nodestatus_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/stats"
)

var (
	noon       = time.Date(2026, 1, 2, 12, 0, 0, 123456789, time.UTC)
	memoryOnly = nodestatus.Raised{eviction.MemoryPressure: true}
	messages   = [eviction.NumConditions]string{"memory.available is 90Mi, below 100Mi", "no disk signal is low", "pid.available is fine"}
)

func TestModesAreParsedByTheirNames(t *testing.T) {
	for name, acts := range map[string]bool{"native": true, "takeover": true, "backstop": true, "observe": false} {
		mode, err := nodestatus.ParseMode(name)
		if err != nil || mode.String() != name || mode.Acts() != acts {
			t.Errorf("ParseMode(%q) = %v acting %v, %v", name, mode, mode.Acts(), err)
		}
	}
	_, err := nodestatus.ParseMode("Native")
	if err == nil || !strings.Contains(err.Error(), "native, takeover, backstop, observe") {
		t.Errorf("an unknown mode: %v", err)
	}
}

func TestConditionsAreNamedAndWordedByMode(t *testing.T) {
	all := nodestatus.Raised{true, true, true}
	for _, c := range []struct {
		mode   nodestatus.Mode
		raised nodestatus.Raised
		want   []string
	}{
		{nodestatus.Native, all, []string{
			"MemoryPressure=True KubeletHasInsufficientMemory: kubelet has insufficient memory available",
			"DiskPressure=True KubeletHasDiskPressure: kubelet has disk pressure",
			"PIDPressure=True KubeletHasInsufficientPID: kubelet has insufficient PID available",
		}},
		{nodestatus.Native, nodestatus.Raised{}, []string{
			"MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available",
			"DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			"PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available",
		}},
		{nodestatus.Backstop, all, []string{
			"evictd.io/MemoryPressure=True EvictdHasInsufficientMemory: " + messages[0],
			"evictd.io/DiskPressure=True EvictdHasDiskPressure: " + messages[1],
			"evictd.io/PIDPressure=True EvictdHasInsufficientPID: " + messages[2],
		}},
		{nodestatus.Observe, nodestatus.Raised{}, []string{
			"evictd.io/MemoryPressure=False EvictdHasSufficientMemory: " + messages[0],
			"evictd.io/DiskPressure=False EvictdHasNoDiskPressure: " + messages[1],
			"evictd.io/PIDPressure=False EvictdHasSufficientPID: " + messages[2],
		}},
	} {
		var got []string
		for _, c := range c.mode.Conditions(c.raised, messages, nil, noon) {
			got = append(got, string(c.Type)+"="+string(c.Status)+" "+c.Reason+": "+c.Message)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s, raised %v:\ngot  %q\nwant %q", c.mode, c.raised, got, c.want)
		}
	}
}

// rule: M.161
func TestTheConditionOfAStallIsThereWhereItHasAThreshold(t *testing.T) {
	stalled := nodestatus.Raised{eviction.MemoryContention: true}
	with := messages
	with[eviction.MemoryContention] = "memory.stall is 50%, hard threshold 40%"
	has := []v1.NodeCondition{{Type: "evictd.io/MemoryContention", Status: v1.ConditionTrue}}
	for _, mode := range []nodestatus.Mode{nodestatus.Native, nodestatus.Backstop} {
		for name, c := range map[string]struct {
			raised   nodestatus.Raised
			messages [eviction.NumConditions]string
			previous []v1.NodeCondition
			want     string
		}{
			"no threshold":          {nodestatus.Raised{}, messages, nil, ""},
			"met":                   {stalled, with, nil, "True EvictdHasMemoryContention: memory.stall is 50%, hard threshold 40%"},
			"not met":               {nodestatus.Raised{}, with, nil, "False EvictdHasNoMemoryContention: memory.stall is 50%, hard threshold 40%"},
			"no threshold any more": {nodestatus.Raised{}, messages, has, "False EvictdHasNoMemoryContention: no threshold of its signals is set"},
		} {
			var got strings.Builder
			for _, c := range mode.Conditions(c.raised, c.messages, c.previous, noon)[3:] {
				got.WriteString(string(c.Status) + " " + c.Reason + ": " + c.Message)
			}
			if got.String() != c.want {
				t.Errorf("%v, %s: %q, want %q", mode, name, got.String(), c.want)
			}
		}
		if got := nodestatus.TaintNames(mode.Taints(stalled)); !slices.Equal(got, []string{"evictd.io/memory-contention:NoSchedule"}) {
			t.Errorf("%v: taints %v", mode, got)
		}
	}
}

func TestTransitionTimeMovesOnlyWhenTheStatusFlips(t *testing.T) {
	previous := []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	for i, step := range []struct {
		raised nodestatus.Raised
		flips  bool
	}{
		{nodestatus.Raised{}, true}, // it was unknown before
		{nodestatus.Raised{}, false},
		{memoryOnly, true},
		{memoryOnly, false},
		{nodestatus.Raised{}, true},
	} {
		now := noon.Add(time.Duration(i) * 10 * time.Second)
		got := nodestatus.Native.Conditions(step.raised, messages, previous, now)
		if flipped := got[eviction.MemoryPressure].LastTransitionTime.Time.Equal(now); flipped != step.flips {
			t.Errorf("step %d: flipped %v, want %v", i, flipped, step.flips)
		}
		for _, c := range got {
			if !c.LastHeartbeatTime.Time.Equal(now) {
				t.Errorf("step %d: %s has its heartbeat at %v", i, c.Type, c.LastHeartbeatTime)
			}
		}
		previous = append(got, previous[len(previous)-1])
	}
	if disk := previous[eviction.DiskPressure]; !disk.LastTransitionTime.Time.Equal(noon) {
		t.Errorf("disk pressure never changed, and yet at %v", disk.LastTransitionTime)
	}
}

func TestMergingTaintsTouchesOnlyTheModesOwn(t *testing.T) {
	const native, own = v1.TaintNodeMemoryPressure, "evictd.io/memory-pressure"
	added := metav1.NewTime(noon)
	for name, c := range map[string]struct {
		mode     nodestatus.Mode
		existing string
		raised   nodestatus.Raised
		want     string
		changed  bool
	}{
		"nothing":                {nodestatus.Native, "", nodestatus.Raised{}, "", false},
		"set":                    {nodestatus.Native, "x:NoSchedule", memoryOnly, "x:NoSchedule " + native + ":NoSchedule", true},
		"stays in its place":     {nodestatus.Native, native + ":NoSchedule x:NoExecute", memoryOnly, native + ":NoSchedule x:NoExecute", false},
		"cleared":                {nodestatus.Native, "x:NoExecute " + native + ":NoSchedule", nodestatus.Raised{}, "x:NoExecute", true},
		"another effect is kept": {nodestatus.Native, native + ":NoExecute " + native + ":PreferNoSchedule", nodestatus.Raised{}, native + ":NoExecute " + native + ":PreferNoSchedule", false},
		"another mode's is kept": {nodestatus.Backstop, native + ":NoSchedule", nodestatus.Raised{}, native + ":NoSchedule", false},
		"own beside built-in":    {nodestatus.Takeover, native + ":NoSchedule", memoryOnly, native + ":NoSchedule " + own + ":NoSchedule", true},
		"only one of two stays":  {nodestatus.Native, native + ":NoSchedule " + native + ":NoSchedule", memoryOnly, native + ":NoSchedule", true},
	} {
		var existing []v1.Taint
		for text := range strings.FieldsSeq(c.existing) {
			key, effect, _ := strings.Cut(text, ":")
			existing = append(existing, v1.Taint{Key: key, Effect: v1.TaintEffect(effect), TimeAdded: &added})
		}
		before := slices.Clone(existing)
		merged, changed := c.mode.MergeTaints(existing, c.raised)
		var got []string
		for _, taint := range merged {
			got = append(got, taint.ToString())
			if wasThere := strings.Contains(c.existing, taint.ToString()); wasThere != (taint.TimeAdded != nil) {
				t.Errorf("%s: %s was there: %v, and has the time %v", name, taint.ToString(), wasThere, taint.TimeAdded)
			}
		}
		if text := strings.Join(got, " "); text != c.want || changed != c.changed {
			t.Errorf("%s: got %q changed %v, want %q changed %v", name, text, changed, c.want, c.changed)
		}
		if !slices.Equal(existing, before) {
			t.Errorf("%s: the existing taints were modified", name)
		}
	}
}

func resources(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// rule: 2.44
// rule: 2.46
func TestAllocatableIsCapacityLessAllThatIsReserved(t *testing.T) {
	for name, c := range map[string]struct {
		reserved       nodestatus.Reserved
		capacity, want v1.ResourceList
		err            string
	}{
		"nothing reserved": {
			nodestatus.Reserved{}, resources("memory", "4Gi", "cpu", "4"), resources("memory", "4Gi", "cpu", "4"), "",
		},
		"all three parts": {
			nodestatus.Reserved{System: resources("memory", "1Gi", "cpu", "500m"), Kube: resources("memory", "512Mi", "pid", "1000"), Hard: resources("memory", "100Mi", "ephemeral-storage", "1Gi")},
			resources("memory", "4Gi", "cpu", "4", "pid", "32768", "ephemeral-storage", "10Gi"),
			resources("memory", "2460Mi", "cpu", "3500m", "pid", "31768", "ephemeral-storage", "9Gi"), "",
		},
		"all of it": {
			nodestatus.Reserved{System: resources("memory", "4Gi")}, resources("memory", "4Gi"), resources("memory", "0"), "",
		},
		"too much of two": {
			nodestatus.Reserved{System: resources("memory", "4Gi", "cpu", "5"), Hard: resources("memory", "1")},
			resources("memory", "4Gi", "cpu", "4"), resources("memory", "0", "cpu", "0"),
			"cpu: 5 reserved of a capacity of 4\nmemory: 4294967297 reserved of a capacity of 4Gi",
		},
		"of a resource the node has not": {
			nodestatus.Reserved{Kube: resources("pid", "10")}, resources("memory", "4Gi"), resources("memory", "4Gi"),
			"pid: 10 reserved of a capacity of 0",
		},
		"a threshold of a file system not measured": {
			nodestatus.Reserved{Hard: resources("ephemeral-storage", "1Gi")}, resources("memory", "4Gi"), resources("memory", "4Gi"), "",
		},
		"huge pages are no ordinary memory": {
			nodestatus.Reserved{Hard: resources("memory", "1Gi")},
			resources("memory", "4Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "1Gi"),
			resources("memory", "1Gi", "hugepages-2Mi", "1Gi", "hugepages-1Gi", "1Gi"), "",
		},
	} {
		got, err := c.reserved.Allocatable(c.capacity)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != c.err {
			t.Errorf("%s: error %q, want %q", name, text, c.err)
		}
		if len(got) != len(c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
		for resource, want := range c.want {
			if amount := got[resource]; amount.Cmp(want) != 0 {
				t.Errorf("%s: %s is %s, want %s", name, resource, &amount, &want)
			}
		}
	}
}

// rule: 1.34
// rule: 2.45
func TestPodsMayUseWhatHardThresholdsKeepFromScheduling(t *testing.T) {
	r := nodestatus.Reserved{System: resources("memory", "1Gi"), Kube: resources("memory", "1Gi"), Hard: resources("memory", "1Gi")}
	for capacity, want := range map[string]string{"4Gi": "2Gi", "1Gi": "0"} {
		limit, known := r.PodsLimit(resources("memory", capacity), v1.ResourceMemory)
		if !known || limit.Cmp(resource.MustParse(want)) != 0 {
			t.Errorf("of %s: %s, known %v, want %s", capacity, &limit, known, want)
		}
	}
	if _, known := r.PodsLimit(nil, v1.ResourceMemory); known {
		t.Error("a limit of an unknown capacity")
	}
}

func TestHeadroomLevelsFollowTheNearestThreshold(t *testing.T) {
	in := func(seconds float64) *float64 { return &seconds }
	const hard, soft = 100 << 20, 400 << 20
	for name, c := range map[string]struct {
		available int64
		seconds   *float64
		want      nodestatus.SignalHeadroom
	}{
		"far":                      {501 << 20, nil, nodestatus.SignalHeadroom{Level: "ok", Available: "501Mi", Threshold: "400Mi"}},
		"far, and falling slowly":  {900 << 20, in(60.06), nodestatus.SignalHeadroom{Level: "ok", Available: "900Mi", Threshold: "400Mi", SecondsToThreshold: in(60.1)}},
		"within a quarter":         {500 << 20, nil, nodestatus.SignalHeadroom{Level: "tight", Available: "500Mi", Threshold: "400Mi"}},
		"falling fast":             {900 << 20, in(60), nodestatus.SignalHeadroom{Level: "tight", Available: "900Mi", Threshold: "400Mi", SecondsToThreshold: in(60)}},
		"at the soft threshold":    {400 << 20, nil, nodestatus.SignalHeadroom{Level: "tight", Available: "400Mi", Threshold: "400Mi"}},
		"below the soft threshold": {399 << 20, in(5), nodestatus.SignalHeadroom{Level: "soft", Available: "399Mi", Threshold: "100Mi", SecondsToThreshold: in(5)}},
		"below the hard threshold": {99 << 20, in(5), nodestatus.SignalHeadroom{Level: "hard", Available: "99Mi", Threshold: "100Mi"}},
	} {
		h := nodestatus.NewHeadroom([]nodestatus.Measured{
			{Signal: eviction.MemoryAvailable, Available: stats.Known(c.available), Hard: []int64{hard}, Soft: []int64{soft}, SecondsToThreshold: c.seconds},
			{Signal: eviction.PIDAvailable, Available: stats.Known(7)},
			{Signal: eviction.NodeFsAvailable, Hard: []int64{hard}},
		}, nil, noon)
		if len(h.Signals) != 1 {
			t.Errorf("%s: signals without a threshold or a measurement: %v", name, h.Signals)
		}
		if got, want := asJSON(t, h.Signals["memory.available"]), asJSON(t, c.want); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

func TestHeadroomChangesLevelNotFigure(t *testing.T) {
	at := func(available int64) nodestatus.Headroom {
		return nodestatus.NewHeadroom([]nodestatus.Measured{{Signal: eviction.PIDAvailable, Available: stats.Known(available), Hard: []int64{100}}}, nil, noon)
	}
	if !at(1000).SameLevels(at(900)) || at(1000).SameLevels(at(90)) || at(1000).SameLevels(nodestatus.Headroom{}) {
		t.Error("SameLevels takes a figure for a level, or the other way round")
	}
}

func TestHeadroomKeepsRecentEvictionsWithinFourKibibytes(t *testing.T) {
	var signals []nodestatus.Measured
	seconds := 1234567.8
	for _, s := range eviction.Signals() {
		signals = append(signals, nodestatus.Measured{Signal: s, Available: stats.Known(1<<62 + 1), Hard: []int64{1<<61 + 1}, SecondsToThreshold: &seconds})
	}
	for owner, atLeast := range map[string]int{"o": 32, strings.Repeat("u", 36): 20, strings.Repeat("<", 300): 1, strings.Repeat("x", 5000): 0} {
		var evicted []nodestatus.Evicted
		for i := range 100 { // the oldest last
			evicted = append(evicted, nodestatus.Evicted{Owner: owner, Signal: "allocatableMemory.available", At: noon.Add(-time.Duration(i) * time.Minute)})
		}
		text, err := nodestatus.NewHeadroom(signals, evicted, noon).Annotation()
		if err != nil || len(text) > 4096 {
			t.Fatalf("%d bytes, %v", len(text), err)
		}
		var got nodestatus.Headroom
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		n := len(got.Evicted)
		if len(got.Signals) != eviction.NumSignals || n < min(atLeast, 30) {
			t.Errorf("%d signals and %d evictions of owners of %d bytes in %d bytes", len(got.Signals), n, len(owner), len(text))
		}
		if n > 0 && (!got.Evicted[n-1].At.Equal(noon.Truncate(time.Second)) || noon.Sub(got.Evicted[0].At) > 30*time.Minute) {
			t.Errorf("kept the wrong evictions: %v to %v", got.Evicted[0].At, got.Evicted[n-1].At)
		}
	}
}

func TestHeadroomIsWrittenAsTheContractShowsIt(t *testing.T) {
	seconds := 42.0
	text, err := nodestatus.NewHeadroom(
		[]nodestatus.Measured{{Signal: eviction.MemoryAvailable, Available: stats.Known(700 << 20), Hard: []int64{500 << 20}, SecondsToThreshold: &seconds}},
		[]nodestatus.Evicted{{Owner: "5f0c", Signal: "memory.available", At: noon}}, noon.Add(time.Minute)).Annotation()
	want := `{"v":1,"signals":{"memory.available":{"level":"tight","available":"700Mi","threshold":"500Mi","secondsToThreshold":42}},` +
		`"evicted":[{"owner":"5f0c","signal":"memory.available","at":"2026-01-02T12:00:00Z"}]}`
	if err != nil || text != want {
		t.Errorf("got  %s, %v\nwant %s", text, err, want)
	}
	if text, _ := nodestatus.NewHeadroom(nil, nil, noon).Annotation(); text != `{"v":1,"signals":{},"evicted":[]}` {
		t.Errorf("nothing known: %s", text)
	}
}

func TestNodeManifestIsAStrictNode(t *testing.T) {
	capacity := resources("memory", "4Gi", "cpu", "4", "ephemeral-storage", "10Gi")
	allocatable, err := nodestatus.Reserved{System: resources("memory", "1Gi")}.Allocatable(capacity)
	require.NoError(t, err)
	text, err := nodestatus.Node{
		Name:        "n1",
		Taints:      nodestatus.Native.Taints(memoryOnly),
		Capacity:    capacity,
		Allocatable: allocatable,
		Conditions:  nodestatus.Native.Conditions(memoryOnly, messages, nil, noon),
	}.Manifest()
	require.NoError(t, err)
	golden.Check(t, "testdata/node.yaml", text)
	var node v1.Node
	if err := yaml.UnmarshalStrict(text, &node); err != nil || node.Kind != "Node" || len(node.Status.Conditions) != 3 {
		t.Errorf("read back: %v, %v", node, err)
	}
}

func TestStatusDocumentIsWrittenAsTheContractShowsIt(t *testing.T) {
	seconds := 12.5
	status := nodestatus.Status{
		Node: "n1", Mode: nodestatus.Native, Time: nodestatus.Time{Time: noon},
		Signals: []nodestatus.SignalStatus{
			{
				Name: "memory.available", Available: "900Mi", Capacity: "4Gi", Source: "poll", SecondsToThreshold: &seconds,
				Age: metav1.Duration{Duration: 1500 * time.Millisecond}, Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "100Mi"}},
			},
			{Name: "pid.available", Source: "poll"},
		},
		Conditions: nodestatus.StatusOf(nodestatus.Native.Conditions(memoryOnly, messages, nil, noon)),
		Taints:     nodestatus.TaintNames(nodestatus.Native.Taints(nodestatus.Raised{true, true, true})),
		Ranking: map[string][]nodestatus.Ranked{
			"memory.available": {{
				Pod: "default/a", UID: "default/a", QOSClass: v1.PodQOSBestEffort, Usage: "700Mi", Request: "100Mi", Exceeds: true, WouldFree: "700Mi",
			}},
			"pid.available": nil,
		},
		Evictions: []nodestatus.Eviction{{
			Pod: "default/a", UID: "default/a", Signal: "memory.available",
			Crossed: nodestatus.Time{Time: noon}, Decided: nodestatus.Time{Time: noon.Add(time.Millisecond)}, Signalled: nodestatus.Time{Time: noon.Add(2 * time.Millisecond)},
			Source: "memcg-threshold", Reason: "Evicted", Message: "The node was low on resource: memory. ", Because: "no other pod is eligible",
		}},
	}
	text, err := json.MarshalIndent(status, "", "  ")
	require.NoError(t, err)
	golden.Check(t, "testdata/status.json", append(text, '\n'))

	var back nodestatus.Status
	if err := json.Unmarshal(text, &back); err != nil || asJSON(t, back) != asJSON(t, status) {
		t.Errorf("read back: %v\n%s", err, asJSON(t, back))
	}
	empty := `{"node":"","mode":"native","time":"0001-01-01T00:00:00.000000Z","signals":[],"conditions":[],"taints":[],"ranking":{},"evictions":[]}`
	if got := asJSON(t, nodestatus.Status{}); got != empty {
		t.Errorf("nothing known: %s", got)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	require.NoError(t, err)
	return string(text)
}
