package config

import (
	"encoding/json"
	"testing"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/framework"
)

func TestTheVersionedConfigurationHasDefaultsAndPlugins(t *testing.T) {
	plugins := []Plugin{
		{Name: "A", Default: true, Weight: 3, Points: []framework.Point{framework.Filter, framework.Score}},
		{Name: "B", Default: true, Points: []framework.Point{framework.QueueSort, framework.Bind}},
	}
	file, err := Load([]byte(`{apiVersion: kubescheduler.config.k8s.io/v1, kind: KubeSchedulerConfiguration, parallelism: 8,
		profiles: [{schedulerName: s, pluginConfig: [{name: C, args: {a: 1}}], plugins: {filter: {enabled: [{name: C}]}}}]}`), "", append(plugins, Plugin{Name: "C"}))
	require.NoError(t, err)
	cfg, err := Compile(&file, append(plugins, Plugin{Name: "C"}))
	require.NoError(t, err)
	text, err := json.Marshal(cfg.Versioned([]configv1.Extender{{URLPrefix: "http://e", TLSConfig: &configv1.ExtenderTLSConfig{KeyData: []byte("key"), ServerName: "e"}}}))
	require.NoError(t, err)
	var got configv1.KubeSchedulerConfiguration
	require.NoError(t, json.Unmarshal(text, &got))
	p := got.Profiles[0]
	if *got.Parallelism != 8 || *got.PodMaxBackoffSeconds != 10 || got.LeaderElection.ResourceName != "kube-scheduler" || got.Extenders[0].URLPrefix != "http://e" || got.Extenders[0].TLSConfig.ServerName != "e" || got.Extenders[0].TLSConfig.KeyData != nil || *p.SchedulerName != "s" {
		t.Errorf("got %s", text)
	}
	if f := p.Plugins.Filter.Enabled; len(f) != 2 || f[0].Name != "A" || f[0].Weight != nil || f[1].Name != "C" || *p.Plugins.Score.Enabled[0].Weight != 3 || p.Plugins.Bind.Enabled[0].Name != "B" {
		t.Errorf("plugins of %s", text)
	}
	if c := p.PluginConfig; len(c) != 1 || c[0].Name != "C" || string(c[0].Args.Raw) != `{"a":1}` {
		t.Errorf("arguments of %s", text)
	}
}
