package config

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/config/v1alpha1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Versioned returns the configuration in force, with the extenders as the file has them.
// Each extension point lists its plugins, and multiPoint disables all others. Private keys of
// extenders are left out.
func (c *Config) Versioned(extenders []configv1.Extender) *configv1.KubeSchedulerConfiguration {
	seconds := func(d time.Duration) *int64 { return new(int64(d / time.Second)) }
	e, connection := &c.LeaderElection, &c.ClientConnection
	versioned := &configv1.KubeSchedulerConfiguration{
		TypeMeta:    configuration,
		Parallelism: new(int32(c.Parallelism)),
		LeaderElection: v1alpha1.LeaderElectionConfiguration{
			LeaderElect: &e.Enabled, ResourceLock: leaseLock, ResourceNamespace: e.Namespace, ResourceName: e.Name,
			LeaseDuration: metav1.Duration{Duration: e.LeaseDuration}, RenewDeadline: metav1.Duration{Duration: e.RenewDeadline}, RetryPeriod: metav1.Duration{Duration: e.RetryPeriod},
		},
		ClientConnection: v1alpha1.ClientConnectionConfiguration{
			Kubeconfig: connection.Kubeconfig, AcceptContentTypes: connection.AcceptContentTypes, ContentType: connection.ContentType,
			QPS: connection.QPS, Burst: int32(connection.Burst),
		},
		DebuggingConfiguration:   v1alpha1.DebuggingConfiguration{EnableProfiling: &c.Profiling, EnableContentionProfiling: new(false)},
		PodInitialBackoffSeconds: seconds(c.PodInitialBackoff),
		PodMaxBackoffSeconds:     seconds(c.PodMaxBackoff),
	}
	for _, e := range extenders {
		if e.TLSConfig != nil {
			e.TLSConfig = e.TLSConfig.DeepCopy()
			e.TLSConfig.KeyData = nil
		}
		versioned.Extenders = append(versioned.Extenders, e)
	}
	for i := range c.Profiles {
		versioned.Profiles = append(versioned.Profiles, c.Profiles[i].versioned())
	}
	return versioned
}

func (p *Profile) versioned() configv1.KubeSchedulerProfile {
	plugins := &configv1.Plugins{MultiPoint: configv1.PluginSet{Disabled: []configv1.Plugin{{Name: "*"}}}}
	for point, set := range [framework.Points]*configv1.PluginSet{
		framework.PreEnqueue: &plugins.PreEnqueue, framework.QueueSort: &plugins.QueueSort, framework.PreFilter: &plugins.PreFilter, framework.Filter: &plugins.Filter,
		framework.PostFilter: &plugins.PostFilter, framework.PreScore: &plugins.PreScore, framework.Score: &plugins.Score, framework.Reserve: &plugins.Reserve,
		framework.Permit: &plugins.Permit, framework.PreBind: &plugins.PreBind, framework.Bind: &plugins.Bind, framework.PostBind: &plugins.PostBind,
	} {
		for _, e := range p.Points[point] {
			enabled := configv1.Plugin{Name: e.Name}
			if e.Weight != 0 {
				enabled.Weight = new(int32(e.Weight))
			}
			set.Enabled = append(set.Enabled, enabled)
		}
	}
	versioned := configv1.KubeSchedulerProfile{SchedulerName: &p.Name, PercentageOfNodesToScore: &p.PercentageOfNodesToScore, Plugins: plugins}
	for _, i := range p.Plugins {
		if i.Args != nil {
			versioned.PluginConfig = append(versioned.PluginConfig, configv1.PluginConfig{Name: i.Name, Args: runtime.RawExtension{Object: i.Args}})
		}
	}
	return versioned
}
