// Package interpod is the plugin InterPodAffinity: affinity and anti-affinity
// between pods.
package interpod

import (
	"fmt"

	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// Name of the plugin.
const Name = "InterPodAffinity"

// Reasons of rejections.
const (
	apart   = iota // no pod that matches the affinity terms
	near           // pods that match the anti-affinity terms
	refused        // pods whose anti-affinity terms match the pod
)

var reasons = [...][]string{
	apart:   {"node(s) didn't match pod affinity rules"},
	near:    {"node(s) didn't match pod anti-affinity rules"},
	refused: {"node(s) didn't satisfy existing pods anti-affinity rules"},
}

// Plugin is InterPodAffinity.
type Plugin struct {
	table *nodetable.Table
	// hardWeight is hardPodAffinityWeight.
	hardWeight int64
	// ownOnly is ignorePreferredTermsOfExistingPods.
	ownOnly bool
	terms   []*nodetable.CarriedTerm // buffer
	slopes  []slope                  // of the pod of the cycle
	shares  framework.Mapping
	limits  limits
}

// New makes the plugin; args are an InterPodAffinityArgs with its defaults.
func New(args any, env framework.Env) (framework.Plugin, error) {
	a, ok := args.(*config.InterPodAffinityArgs)
	if !ok || a.HardPodAffinityWeight == nil {
		return nil, fmt.Errorf("%s: arguments are %T without a weight", Name, args)
	}
	return &Plugin{table: env.Table, hardWeight: int64(*a.HardPodAffinityWeight), ownOnly: a.IgnorePreferredTermsOfExistingPods}, nil
}

func (*Plugin) Name() string { return Name }

// PreFilter skips pods without required terms that match no anti-affinity term of a
// placed pod.
func (p *Plugin) PreFilter(c *framework.Cycle) framework.Status {
	if len(c.Pod.Affinity) > 0 || len(c.Pod.AntiAffinity) > 0 {
		return framework.Status{}
	}
	for _, term := range p.refusing(c) {
		if somewhere(&term.Tally, c.Table.Topology(term.Topology)) {
			return framework.Status{}
		}
	}
	return framework.Status{Code: framework.Skip}
}

// refusing are the anti-affinity terms of placed pods that match the pod. They are
// valid until the next call.
func (p *Plugin) refusing(c *framework.Cycle) []*nodetable.CarriedTerm {
	p.terms = c.Table.CarriedMatching(nodetable.RequiredAntiAffinity, c.Pod, p.terms[:0])
	return p.terms
}

// somewhere reports whether any domain has pods.
func somewhere(pods *nodetable.Tally, topology *nodetable.Topology) bool {
	for on := range pods.Rows() {
		if topology.Labelled.Has(on.Row) {
			return true
		}
	}
	return false
}

// Filter rejects nodes in no domain with a pod that matches all affinity terms,
// then nodes in a domain with a pod that matches an anti-affinity term, then nodes
// in a domain with a pod whose anti-affinity term matches this pod.
func (p *Plugin) Filter(c *framework.Cycle) framework.Status {
	p.filterAffinity(c)
	for _, term := range c.Pod.AntiAffinity {
		reject(c, &c.Table.Counter(term.Pods).Tally, term.Topology, near)
	}
	for _, term := range p.refusing(c) {
		reject(c, &term.Tally, term.Topology, refused)
	}
	return framework.Status{}
}

// filterAffinity accepts all nodes with the topology keys if no pod matches the
// terms and the pod matches its own terms.
func (p *Plugin) filterAffinity(c *framework.Cycle) {
	if len(c.Pod.Affinity) == 0 {
		return
	}
	companions := c.Table.Counter(c.Pod.Companions)
	first := p.isFirst(c, companions)
	for _, term := range c.Pod.Affinity {
		topology := c.Table.Topology(term.Topology)
		counts := companions.In(topology)
		for row := range c.Feasible.All() {
			if domain := topology.Of[row]; domain == nodetable.NoDomain || !first && counts[domain] == 0 {
				c.Reject(row, apart, true)
			}
		}
	}
}

// isFirst reports whether the pod matches its own terms, and no other pod does.
func (p *Plugin) isFirst(c *framework.Cycle, companions *nodetable.Counter) bool {
	first := c.Table.Matches(c.Pod.Companions, c.Pod)
	for _, term := range c.Pod.Affinity {
		first = first && !somewhere(&companions.Tally, c.Table.Topology(term.Topology))
	}
	return first
}

// reject rejects nodes in a domain with any of the pods.
func reject(c *framework.Cycle, pods *nodetable.Tally, key nodetable.Symbol, reason uint32) {
	if pods.Total() == 0 {
		return
	}
	topology := c.Table.Topology(key)
	counts := pods.In(topology)
	for row := range c.Feasible.All() {
		if domain := topology.Of[row]; domain != nodetable.NoDomain && counts[domain] > 0 {
			c.Reject(row, reason, false)
		}
	}
}

func (*Plugin) Reasons(_ *nodetable.Pod, reason uint32) []string { return reasons[reason] }
