package config_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/profile"
)

// plugins are the built-in plugins and out-of-tree ones.
func plugins() []config.Plugin {
	return append(profile.BuiltIn(), config.Plugin{
		Name: "OutOfTree", Points: []framework.Point{framework.PreFilter, framework.Filter, framework.Score, framework.Permit},
	}, config.Plugin{
		Name: "OutOfTreeSort", Points: []framework.Point{framework.QueueSort},
	})
}

// TestCases compiles each configuration of testdata and compares the result with
// the file beside it.
func TestCases(t *testing.T) {
	golden.Each(t, "testdata/*.yaml", func(t *testing.T, file string) {
		data := require.ReadFile(t, file)
		golden.Check(t, golden.Beside(file, ".txt"), compiled(data))
	})
}

// TestExamplesChangeNothingButWhatTheyAreAbout compares what the examples change in
// the default profile.
func TestExamplesChangeNothingButWhatTheyAreAbout(t *testing.T) {
	golden.Each(t, "../../docs/examples/*.yaml", checkExample)
	golden.Each(t, "../../docs/examples/*/*.yaml", checkExample)
}

func checkExample(t *testing.T, file string) {
	data := require.ReadFile(t, file)
	name, err := filepath.Rel("../../docs/examples", file)
	require.NoError(t, err)
	golden.Check(t, "testdata/examples/"+strings.TrimSuffix(strings.ReplaceAll(name, "/", "-"), ".yaml")+".txt", compiled(data))
}

// compiled is the compiled configuration, or its faults; of plugins and settings
// only what differs from the default profile.
func compiled(data []byte) []byte {
	var out bytes.Buffer
	file, err := config.Load(data, "", plugins())
	c, more := config.Compile(&file, plugins())
	if err = errors.Join(err, more); err != nil {
		for _, fault := range manifest.Faults(err) {
			fmt.Fprintf(&out, "fault: %v\n", fault)
		}
		return out.Bytes()
	}
	empty, _ := config.Load([]byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"), "", plugins())
	usual, _ := config.Compile(&empty, plugins())
	if reflect.DeepEqual(c, usual) {
		usual = config.Config{Profiles: []config.Profile{{}}}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		if field.Name == "Profiles" || field.Name == "Extenders" || field.Name == "Warnings" {
			continue
		}
		value := reflect.ValueOf(c).FieldByIndex(field.Index)
		if !reflect.DeepEqual(value.Interface(), reflect.ValueOf(usual).FieldByIndex(field.Index).Interface()) {
			fmt.Fprintf(&out, "%s: %+v\n", field.Name, value)
		}
	}
	for _, p := range c.Profiles {
		describe(&out, p, usual.Profiles[0])
	}
	for _, e := range c.Extenders {
		fmt.Fprintf(&out, "extender: %+v\n", e)
	}
	for _, warning := range c.Warnings {
		fmt.Fprintf(&out, "warning: %s\n", warning)
	}
	return out.Bytes()
}

func describe(out *bytes.Buffer, profile, usual config.Profile) {
	fmt.Fprintf(out, "profile %s: percentage of nodes to score %d\n", profile.Name, profile.PercentageOfNodesToScore)
	if profile.EveryReason {
		fmt.Fprintln(out, "  every reason of a node is reported")
	}
	for i, enabled := range profile.Points {
		if !slices.Equal(enabled, usual.Points[i]) {
			fmt.Fprintf(out, "  %v:%s\n", framework.Point(i), list(enabled))
		}
	}
	for _, instance := range profile.Plugins {
		if slices.ContainsFunc(usual.Plugins, func(i config.Instance) bool { return reflect.DeepEqual(i, instance) }) {
			continue
		}
		if raw, ok := instance.Args.(*runtime.Unknown); ok {
			fmt.Fprintf(out, "  %s, as written: %s\n", instance.Name, raw.Raw)
			continue
		}
		if instance.Args == nil {
			continue
		}
		args := instance.Args.DeepCopyObject()
		args.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		text, err := json.Marshal(args)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(out, "  %s: %s\n", instance.Name, text)
	}
}

func list(enabled []config.Enabled) string {
	var text strings.Builder
	for _, e := range enabled {
		fmt.Fprintf(&text, " %s", e.Name)
		if e.Weight != 0 {
			fmt.Fprintf(&text, "*%d", e.Weight)
		}
	}
	return text.String()
}

// rule: S4.1
// rule: S4.2
// rule: S4.3
func TestTheSearchForFeasibleNodesEndsAtAShareOfTheCluster(t *testing.T) {
	for _, test := range []struct {
		nodes   int
		percent int32
		want    int
	}{
		{0, 0, 0}, {1, 0, 1}, {10, 0, 10}, {99, 0, 99}, {100, 0, 100}, {200, 0, 100}, {250, 0, 120}, {300, 0, 144}, {500, 0, 230},
		{1000, 0, 420}, {1250, 0, 500}, {2000, 0, 680}, {2500, 0, 750}, {3000, 0, 780}, {4000, 0, 720}, {5000, 0, 500},
		{5500, 0, 330}, {5625, 0, 281}, {6000, 0, 300}, {15000, 0, 750},
		{10, 40, 10}, {1000, 40, 400}, {6000, 40, 2400}, {1000, 1, 100}, {5000, 100, 5000}, {20000, 100, 20000},
	} {
		if got := config.NumFeasibleNodesToFind(test.nodes, test.percent); got != test.want {
			t.Errorf("%d nodes, %d %%: %d, want %d", test.nodes, test.percent, got, test.want)
		}
	}
}

func TestCompilingLeavesTheFileAsItIs(t *testing.T) {
	data := []byte(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: NodeAffinity, weight: 5}, {name: OutOfTree}], disabled: [{name: ImageLocality}]}}
  pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [a.example/x]}}]
extenders:
- {urlPrefix: "http://127.0.0.1", managedResources: [{name: b.example/y, ignoredByScheduler: true}]}
`)
	file, err := config.Load(data, "", plugins())
	require.NoError(t, err)
	before := file.KubeSchedulerConfiguration.DeepCopy()
	first, err := config.Compile(&file, plugins())
	require.NoError(t, err)
	second, err := config.Compile(&file, plugins())
	if err != nil || !reflect.DeepEqual(first, second) {
		t.Errorf("compiled again: %+v, %v; at first %+v", second, err, first)
	}
	if !reflect.DeepEqual(&file.KubeSchedulerConfiguration, before) {
		t.Errorf("the file became %+v", file)
	}
}

func TestTheEnvironmentOverridesHowManyVolumesANodeTakes(t *testing.T) {
	data := []byte("{apiVersion: v1, kind: Policy, predicates: [{name: MaxEBSVolumeCount}, {name: MaxCinderVolumeCount}]}")
	for _, c := range []struct {
		value       string
		ebs, cinder int32
		types       string // with the EBS limit 25
		warning     string
	}{
		{"", 39, 256, "^[cmr]5.*|t3|z1d", "[]"},
		{"7", 7, 7, "", "[]"},
		{"0", 39, 256, "^[cmr]5.*|t3|z1d", `[KUBE_MAX_PD_VOLS: "0" is not a number above 0: ignored]`},
		{"many", 39, 256, "^[cmr]5.*|t3|z1d", `[KUBE_MAX_PD_VOLS: "many" is not a number above 0: ignored]`},
	} {
		file, err := config.Load(data, c.value, plugins())
		require.NoError(t, err)
		compiled, err := config.Compile(&file, plugins())
		require.NoError(t, err)
		instances := compiled.Profiles[0].Plugins
		args := instances[slices.IndexFunc(instances, func(i config.Instance) bool { return i.Name == "NodeVolumeLimits" })].Args.(*config.NodeVolumeLimitsArgs)
		ebs := config.InTreeLimit{Plugin: "kubernetes.io/aws-ebs", Count: c.ebs, InstanceTypes: c.types}
		if c.types != "" {
			ebs.CountThere = 25
		}
		want := []config.InTreeLimit{ebs, {Plugin: "kubernetes.io/cinder", Count: c.cinder}}
		if got := fmt.Sprint(compiled.Warnings); !slices.Equal(args.InTree, want) || got != c.warning {
			t.Errorf("%q: limits %+v, warnings %s; want %+v, %s", c.value, args.InTree, got, want, c.warning)
		}
	}
}

func FuzzLoad(f *testing.F) {
	golden.Seed(f, "testdata/*.yaml")
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := config.Load(data, "", plugins())
		c, more := config.Compile(&file, plugins())
		if err != nil || more != nil {
			return
		}
		for _, profile := range c.Profiles {
			if profile.Name == "" || len(profile.Points[framework.QueueSort]) != 1 || len(profile.Points[framework.Bind]) == 0 {
				t.Fatalf("profile %+v", profile)
			}
		}
	})
}
