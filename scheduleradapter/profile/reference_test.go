package profile

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/internal/doctable"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
)

const configuration = "../../docs/configuration.md"

// fieldsOf lists the fields of a type in a file, recursively.
func fieldsOf(of reflect.Type, above string) (names []string) {
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "TypeMeta":
		case f.Anonymous:
			names = append(names, fieldsOf(f.Type, above)...)
		case f.Name == "LeaderElection" || f.Name == "ClientConnection":
			names = append(names, fieldsOf(f.Type, name+".")...)
		case f.Name == "Profiles" || f.Name == "Extenders":
			names = append(names, fieldsOf(f.Type.Elem(), name+"[].")...)
		default:
			names = append(names, above+name)
		}
	}
	return names
}

func TestTheReferenceHasEveryFieldOfAKubeSchedulerConfiguration(t *testing.T) {
	text := require.ReadFile(t, "testdata/fields.yaml")
	var known map[string]string
	require.NoError(t, yaml.UnmarshalStrict(text, &known))
	var table strings.Builder
	table.WriteString("| field | default, and what else is true here |\n|---|---|\n")
	for _, name := range fieldsOf(reflect.TypeFor[configv1.KubeSchedulerConfiguration](), "") {
		said, ok := known[name]
		if !ok {
			t.Errorf("testdata/fields.yaml has no %s", name)
		}
		delete(known, name)
		fmt.Fprintf(&table, "| `%s` | %s |\n", name, doctable.Cell(said))
	}
	for name := range known {
		t.Errorf("testdata/fields.yaml has %s, which is no field", name)
	}
	golden.Section(t, configuration, "scheduler fields", table.String())
}

func TestTheReferenceHasEveryPluginWithItsArguments(t *testing.T) {
	var all []configv1.Plugin
	plugins := BuiltIn()
	for _, p := range plugins {
		if !p.Default {
			all = append(all, configv1.Plugin{Name: p.Name})
		}
	}
	file := config.File{}
	file.Profiles = []configv1.KubeSchedulerProfile{{Plugins: &configv1.Plugins{MultiPoint: configv1.PluginSet{Enabled: all}}}}
	compiled, _ := config.Compile(&file, plugins) // some arguments have no default
	args := map[string]any{}
	for _, i := range compiled.Profiles[0].Plugins {
		args[i.Name] = i.Args
	}
	var table strings.Builder
	table.WriteString("| plugin | in the default profile | weight | arguments |\n|---|---|---|---|\n")
	for _, p := range plugins {
		weight := ""
		if p.Weight > 0 {
			weight = fmt.Sprint(p.Weight)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", p.Name, map[bool]string{true: "yes"}[p.Default], weight, inline(t, args[p.Name]))
	}
	golden.Section(t, configuration, "plugins", table.String())
}

// inline is an object in one line without its kind: fields without a default, then
// the defaults.
func inline(t *testing.T, args any) string {
	t.Helper()
	text, err := yaml.Marshal(args)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, yaml.Unmarshal(text, &fields))
	delete(fields, "apiVersion")
	delete(fields, "kind")
	var all []string
	if args != nil {
		for _, name := range fieldsOf(reflect.TypeOf(args).Elem(), "") {
			if _, has := fields[name]; !has {
				all = append(all, "`"+name+"`")
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value, err := yaml.Marshal(fields[name])
		require.NoError(t, err)
		value, err = yaml.YAMLToJSON(value)
		require.NoError(t, err)
		all = append(all, "`"+name+": "+strings.ReplaceAll(string(value), `"`, "")+"`")
	}
	return doctable.Cell(strings.Join(all, ", "))
}
