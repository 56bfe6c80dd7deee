// Package features is the plugin NodeDeclaredFeatures: it rejects nodes that do not
// declare a feature that the pod needs.
package features

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	declared "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/types"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "NodeDeclaredFeatures"

// release is the Kubernetes version for which the features are evaluated.
const release = "1.37.0"

// Plugin is NodeDeclaredFeatures.
type Plugin struct {
	release  *version.Version
	required declared.FeatureSet // of the pod of the cycle
}

func New(any, framework.Env) (framework.Plugin, error) {
	v, err := version.ParseSemantic(release)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", Name, err)
	}
	return &Plugin{release: v}, nil
}

func (*Plugin) Name() string { return Name }

func (p *Plugin) infer(pod *nodetable.Pod) (declared.FeatureSet, error) {
	return declared.DefaultFramework.InferForPodScheduling(&types.PodInfo{Spec: &pod.Object.Spec, Status: &pod.Object.Status}, p.release)
}

// PreFilter infers the features that the pod needs.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	required, err := p.infer(c.Pod)
	if err != nil {
		return framework.AsStatus(err)
	}
	if required.IsEmpty() {
		return framework.Status{Code: framework.Skip}
	}
	p.required = required
	return framework.Status{}
}

// Filter rejects nodes that lack a feature.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	for row := range c.Feasible.All() {
		match, err := declared.DefaultFramework.MatchNode(p.required, c.Table.Node(row).Object)
		if err != nil {
			return framework.AsStatus(err)
		}
		if !match.IsMatch {
			c.Reject(row, 1, true)
		}
	}
	return framework.Status{}
}

func (*Plugin) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) didn't match Pod's required features"}
}

// Events are: a node was added or declares other features.
func (p *Plugin) Events() []framework.EventHint {
	return []framework.EventHint{{
		Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeDeclaredFeature}, Hint: p.nodeChanged,
	}}
}

func (p *Plugin) nodeChanged(o *framework.Occurrence, pod *nodetable.Pod) (framework.Hint, error) {
	required, err := p.infer(pod)
	if err != nil {
		return framework.Queue, err
	}
	match, err := declared.DefaultFramework.MatchNode(required, o.Node.Object)
	if err != nil || match.IsMatch {
		return framework.Queue, err
	}
	return framework.QueueSkip, nil
}
