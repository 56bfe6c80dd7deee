package config_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// TestCases reads every configuration of testdata and holds what it comes to on
// a node with one disk against the file beside it.
func TestCases(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		data := require.ReadFile(t, file)
		golden.Check(t, golden.Beside(file, ".txt"), effective(data))
	})
}

// effective is what a configuration comes to, or its faults.
func effective(data []byte) []byte {
	var out bytes.Buffer
	file, err := config.Load(data)
	compiled, more := config.Compile(&file, nil)
	if err = errors.Join(err, more); err != nil {
		for _, fault := range manifest.Faults(err) {
			fmt.Fprintf(&out, "fault: %v\n", fault)
		}
		return out.Bytes()
	}
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	thresholds := eviction.New(compiled.Eviction, eviction.SharedFs).Thresholds
	for i := range thresholds {
		t := &thresholds[i]
		fmt.Fprintf(table, "%v\t%s\t%s\tgrace %v\treclaim %s\n", t.Signal, t.Kind(), t.FormatValue(), t.Grace, t.FormatMinReclaim())
	}
	table.Flush()
	e, gc := compiled.Eviction, compiled.Reclaim
	fmt.Fprintf(&out, "pods: grace at most %ds, storage limits %t, held to allocatable %t\n", e.MaxPodGracePeriod, e.LocalStorageCapacityIsolation, compiled.EnforcePods)
	fmt.Fprintf(&out, "conditions: held %v, computed every %v\n", e.PressureTransitionPeriod, compiled.NodeStatusUpdateFrequency)
	fmt.Fprintf(&out, "images: from %d%% to %d%%, unused for %v to %v\n", gc.HighPercent, gc.LowPercent, gc.ImageMinAge, gc.ImageMaxAge)
	if gc.Everything || gc.Keep != nil || gc.ContainerMinAge != 0 || gc.MaxPerPodContainer != 1 || gc.MaxContainers != -1 {
		fmt.Fprintf(&out, "collection: everything %t, keeps %q, dead for %v, %d and %d dead containers\n", gc.Everything, gc.Keep, gc.ContainerMinAge, gc.MaxPerPodContainer, gc.MaxContainers)
	}
	fmt.Fprintf(&out, "reserved: system %s, kube %s\n", resources(compiled.SystemReserved), resources(compiled.KubeReserved))
	fmt.Fprintf(&out, "memory: model %v, kernel notification %t\n", compiled.MemoryModel, file.KernelMemcgNotification == nil || *file.KernelMemcgNotification)
	for _, warning := range compiled.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", warning)
	}
	return out.Bytes()
}

func resources(list v1.ResourceList) string {
	var texts []string
	for name, q := range list {
		texts = append(texts, fmt.Sprintf("%s=%s", name, q.String()))
	}
	slices.Sort(texts)
	return "{" + strings.Join(texts, " ") + "}"
}

// rule: 2.34
func TestAThresholdThatIsNotBelowTheCapacityIsAFaultWhereTheNodeIsKnown(t *testing.T) {
	file, err := config.Load([]byte(`
apiVersion: evictd.io/v1alpha1
kind: EvictdConfiguration
evictionHard: {memory.available: 2Gi, nodefs.available: 10%, imagefs.available: 1Ti, pid.available: "100", nodefs.inodesFree: 90%}
evictionSoft: {nodefs.available: 100Gi}
evictionSoftGracePeriod: {nodefs.available: 1m}
evictionMinimumReclaim: {nodefs.inodesFree: 11%, pid.available: "28"}
`))
	require.NoError(t, err)
	c, err := config.Compile(&file, nil)
	require.NoError(t, err)
	capacity := func(n int64) eviction.Observation { return eviction.Observation{Capacity: stats.Known(n)} }
	warnings, err := c.CheckCapacity(eviction.Observations{
		eviction.MemoryAvailable:            capacity(4 << 30),
		eviction.AllocatableMemoryAvailable: capacity(1 << 30),
		eviction.NodeFsAvailable:            capacity(100 << 30),
		eviction.NodeFsInodesFree:           capacity(1000),
		eviction.PIDAvailable:               capacity(128),
	})
	want := []string{
		`evictionHard[memory.available]: Invalid value: "2Gi": not below the capacity of allocatableMemory.available, 1Gi`,
		`evictionSoft[nodefs.available]: Invalid value: "100Gi": not below the capacity of nodefs.available, 100Gi`,
	}
	var got []string
	for _, fault := range manifest.Faults(err) {
		got = append(got, fault.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got faults\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{
		"evictionHard[nodefs.inodesFree]: 90% and the minimum reclaim, 11%, are not below the capacity of nodefs.inodesFree, 1k: the threshold stays active for ever once it has acted",
		"evictionHard[pid.available]: 100 and the minimum reclaim, 28, are not below the capacity of pid.available, 128: the threshold stays active for ever once it has acted",
	}
	if !slices.Equal(warnings, want) {
		t.Errorf("got warnings\n%s\nwant\n%s", strings.Join(warnings, "\n"), strings.Join(want, "\n"))
	}
	if warnings, err := c.CheckCapacity(eviction.Observations{}); len(warnings) > 0 || err != nil {
		t.Errorf("unknown capacities: %v, %v", warnings, err)
	}
}

// rule: 2.7
func TestFlagsAreReadInTheKubeletsGrammar(t *testing.T) {
	for name, test := range map[string]struct {
		parse func(string) (map[string]string, error)
		text  string
		want  map[string]string // nil where it is refused
	}{
		"nothing":                    {config.ParseThresholds, "", map[string]string{}},
		"one threshold":              {config.ParseThresholds, "memory.available<100Mi", map[string]string{"memory.available": "100Mi"}},
		"several, with space":        {config.ParseThresholds, " memory.available < 100Mi , nodefs.available<10%,", map[string]string{"memory.available": "100Mi", "nodefs.available": "10%"}},
		"the value is not looked at": {config.ParseThresholds, "a<b<c,d<", map[string]string{"a": "b<c", "d": ""}},
		"another comparison":         {config.ParseThresholds, "memory.available>100Mi", nil},
		"a setting for a threshold":  {config.ParseThresholds, "memory.available=100Mi", nil},
		"no signal":                  {config.ParseThresholds, "<100Mi", nil},
		"a signal twice":             {config.ParseThresholds, "a<1,a<2", map[string]string{"a": "2"}},
		"settings":                   {config.ParseSettings, "memory.available=1m30s, nodefs.available=2m", map[string]string{"memory.available": "1m30s", "nodefs.available": "2m"}},
		"a threshold for a setting":  {config.ParseSettings, "memory.available<1m", nil},
		"a setting twice":            {config.ParseSettings, "cpu=1,cpu=2", map[string]string{"cpu": "2"}},
		"a name alone":               {config.ParseSettings, "cpu", nil},
	} {
		got, err := test.parse(test.text)
		if (err != nil) != (test.want == nil) || !equal(got, test.want) {
			t.Errorf("%s: %q read as %v, %v; want %v", name, test.text, got, err, test.want)
		}
	}
}

func equal(a, b map[string]string) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
