package profile

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func environment() (framework.Env, Stores) {
	table := nodetable.New()
	return framework.Env{Table: table, Random: rand.New(rand.NewPCG(1, 1))}, NewSimulatedStores(table)
}

func TestEveryBuiltInPluginIsMadeUnderItsName(t *testing.T) {
	every := &configv1.Plugins{}
	var file config.File
	file.Profiles = []configv1.KubeSchedulerProfile{{Plugins: every}}
	for _, p := range BuiltIn() {
		if !p.Default {
			every.MultiPoint.Enabled = append(every.MultiPoint.Enabled, configv1.Plugin{Name: p.Name})
		}
	}
	cfg, err := config.Compile(&file, BuiltIn())
	require.NoError(t, err)
	env, stores := environment()
	made := factories(stores)
	for _, instance := range cfg.Profiles[0].Plugins {
		factory := made[instance.Name]
		if factory == nil {
			t.Errorf("%s has no factory", instance.Name)
			continue
		}
		plugin, err := factory(instance.Args, env)
		if err != nil {
			t.Error(err)
		} else if plugin.Name() != instance.Name {
			t.Errorf("%s is made as %s", instance.Name, plugin.Name())
		}
		if _, err := factory(nil, env); instance.Args != nil && err == nil {
			t.Errorf("%s is made without its arguments", instance.Name)
		}
		delete(made, instance.Name)
	}
	for name := range made {
		t.Errorf("%s is in no configuration", name)
	}
}

func TestExamplesAreLoadedWithoutAWarningAndKeepEveryDefaultPlugin(t *testing.T) {
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	more, err2 := filepath.Glob("../../docs/examples/*/*.yaml")
	if err := errors.Join(err, err2); err != nil || len(files) == 0 || len(more) == 0 {
		t.Fatal(files, more, err)
	}
	usual, err := config.Compile(&config.File{}, BuiltIn())
	require.NoError(t, err)
	for _, file := range append(files, more...) {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			data := require.ReadFile(t, file)
			loaded, err := config.Load(data, "", BuiltIn())
			require.NoError(t, err)
			cfg, err := config.Compile(&loaded, BuiltIn())
			require.NoError(t, err)
			env, stores := environment()
			if _, err := New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler)); err != nil || len(cfg.Warnings) > 0 {
				t.Error(cfg.Warnings, err)
			}
			for point, enabled := range usual.Profiles[0].Points {
				for _, e := range enabled {
					if !slices.Contains(cfg.Profiles[0].Points[point], e) {
						t.Errorf("%s with weight %d is missing at %v", e.Name, e.Weight, framework.Point(point))
					}
				}
			}
			for _, instance := range usual.Profiles[0].Plugins {
				if !slices.ContainsFunc(cfg.Profiles[0].Plugins, func(i config.Instance) bool { return reflect.DeepEqual(i, instance) }) {
					t.Errorf("%s is missing or has other arguments", instance.Name)
				}
			}
		})
	}
}

func TestPluginsWithoutAFactoryAreReportedTogether(t *testing.T) {
	plugins := append(BuiltIn(),
		config.Plugin{Name: "One", Default: true, Points: []framework.Point{framework.Filter}},
		config.Plugin{Name: "Two", Default: true, Points: []framework.Point{framework.Score}})
	cfg, err := config.Compile(&config.File{}, plugins)
	require.NoError(t, err)
	env, stores := environment()
	_, err = New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
	const want = "profile default-scheduler: plugin One is not part of this program\nplugin Two is not part of this program"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
