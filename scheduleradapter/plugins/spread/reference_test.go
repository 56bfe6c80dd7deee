package spread

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	config "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/campaign"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// reference is a naive implementation that looks at every pod.
type reference struct {
	*testing.T
	*plugintest.Objects
	args        *config.PodTopologySpreadArgs
	services    []*v1.Service
	replicaSets []*appsv1.ReplicaSet
}

// naive is a constraint with its selector for a pod.
type naive struct {
	v1.TopologySpreadConstraint
	selector labels.Selector
}

func (w *reference) selector(s *metav1.LabelSelector) labels.Selector {
	w.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		w.Fatal(err)
	}
	return selector
}

func (w *reference) constraints(pod *v1.Pod, when v1.UnsatisfiableConstraintAction) (all []naive) {
	own := pod.Spec.TopologySpreadConstraints
	for _, c := range own {
		if c.WhenUnsatisfiable != when {
			continue
		}
		selector := w.selector(c.LabelSelector)
		for _, key := range c.MatchLabelKeys {
			if value, found := pod.Labels[key]; found {
				more, _ := labels.SelectorFromSet(labels.Set{key: value}).Requirements()
				selector = selector.Add(more...)
			}
		}
		all = append(all, naive{c, selector})
	}
	defaults := w.args.DefaultConstraints
	if w.args.DefaultingType == config.SystemDefaulting {
		defaults = []v1.TopologySpreadConstraint{{TopologyKey: v1.LabelHostname, MaxSkew: 3, WhenUnsatisfiable: v1.ScheduleAnyway}, {TopologyKey: v1.LabelTopologyZone, MaxSkew: 5, WhenUnsatisfiable: v1.ScheduleAnyway}}
	}
	deduced := w.deduce(pod)
	if len(own) > 0 || deduced.Empty() {
		return all
	}
	for _, c := range defaults {
		if c.WhenUnsatisfiable == when {
			all = append(all, naive{c, deduced})
		}
	}
	return all
}

func (w *reference) deduce(pod *v1.Pod) labels.Selector {
	merged := labels.Set{}
	for _, s := range w.services {
		if s.Namespace == pod.Namespace && s.Spec.Selector != nil && labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
			maps.Copy(merged, s.Spec.Selector)
		}
	}
	selector := merged.AsSelector()
	if owner := metav1.GetControllerOf(pod); owner != nil {
		for _, set := range w.replicaSets {
			if set.Namespace == pod.Namespace && set.Name == owner.Name {
				more, _ := w.selector(set.Spec.Selector).Requirements()
				selector = selector.Add(more...)
			}
		}
	}
	return selector
}

// counts reports whether a node takes part in a constraint.
func (w *reference) counts(c naive, pod *v1.Pod, node *v1.Node) bool {
	if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor {
		if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err != nil || !match {
			return false
		}
	}
	if c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor {
		if _, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *v1.Taint) bool {
			return t.Effect != v1.TaintEffectPreferNoSchedule
		}, false); untolerated {
			return false
		}
	}
	return true
}

func (w *reference) matching(c naive, pod *v1.Pod, node *v1.Node) (n int) {
	for _, other := range w.On(node) {
		if other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && !c.selector.Empty() && c.selector.Matches(labels.Set(other.Labels)) {
			n++
		}
	}
	return n
}

func labelled(all []naive, node *v1.Node) bool {
	for _, c := range all {
		if _, found := node.Labels[c.TopologyKey]; !found {
			return false
		}
	}
	return true
}

// rejected has the reasons by node.
func (w *reference) rejected(pod *v1.Pod) map[string]string {
	rejected := map[string]string{}
	all := w.constraints(pod, v1.DoNotSchedule)
	for _, node := range w.Nodes {
		for _, c := range all {
			value, found := node.Labels[c.TopologyKey]
			if !found {
				rejected[node.Name] = "never: node(s) didn't match pod topology spread constraints (missing required label)"
				break
			}
			pods := map[string]int{}
			for _, other := range w.Nodes {
				if labelled(all, other) && w.counts(c, pod, other) {
					pods[other.Labels[c.TopologyKey]] += w.matching(c, pod, other)
				}
			}
			least := 0
			if c.MinDomains == nil || len(pods) >= int(*c.MinDomains) {
				least = math.MaxInt
				for _, n := range pods {
					least = min(least, n)
				}
			}
			if len(pods) == 0 {
				least = 0
			}
			skew := pods[value] - least
			if c.selector.Matches(labels.Set(pod.Labels)) {
				skew++
			}
			if skew > int(c.MaxSkew) {
				rejected[node.Name] = "node(s) didn't match pod topology spread constraints"
				break
			}
		}
	}
	return rejected
}

// scores of the feasible nodes; nil: the plugin skips the pod.
func (w *reference) scores(pod *v1.Pod, rejected map[string]string) map[string]int64 {
	all := w.constraints(pod, v1.ScheduleAnyway)
	if len(all) == 0 || len(rejected) == len(w.Nodes) {
		return nil
	}
	strict := len(pod.Spec.TopologySpreadConstraints) > 0 || w.args.DefaultingType != config.SystemDefaulting
	var scored []*v1.Node
	scores := map[string]int64{}
	for _, node := range w.Nodes {
		if rejected[node.Name] == "" {
			if strict && !labelled(all, node) {
				scores[node.Name] = 0
			} else {
				scored = append(scored, node)
			}
		}
	}
	raw := map[string]int64{}
	least, most := int64(math.MaxInt64), int64(0)
	for _, node := range scored {
		sum := 0.0
		for _, c := range all {
			if value, found := node.Labels[c.TopologyKey]; found {
				pods, domains := 0, map[string]bool{}
				for _, other := range w.Nodes {
					if other.Labels[c.TopologyKey] == value && (!strict || labelled(all, other)) && w.counts(c, pod, other) {
						pods += w.matching(c, pod, other)
					}
				}
				for _, other := range scored {
					domains[other.Labels[c.TopologyKey]] = true
				}
				size := len(domains)
				if c.TopologyKey == v1.LabelHostname {
					pods, size = w.matching(c, pod, node), len(scored)
				}
				sum += float64(pods)*math.Log(float64(size+2)) + float64(c.MaxSkew-1)
			}
		}
		raw[node.Name] = int64(math.Round(sum))
		least, most = min(least, raw[node.Name]), max(most, raw[node.Name])
	}
	for name, n := range raw {
		scores[name] = 100
		if most > 0 {
			scores[name] = 100 * (most + least - n) / most
		}
	}
	return scores
}

// constrain makes random constraints.
func constrain(d plugintest.Dice, topologies []string, hard int) (all []v1.TopologySpreadConstraint) {
	policy := func() *v1.NodeInclusionPolicy {
		return plugintest.Pick(d, nil, new(v1.NodeInclusionPolicyHonor), new(v1.NodeInclusionPolicyIgnore))
	}
	for range d.Random.IntN(3) {
		c := v1.TopologySpreadConstraint{
			TopologyKey: plugintest.Pick(d, topologies...), MaxSkew: int32(1 + d.Random.IntN(3)), LabelSelector: d.Selector(),
			WhenUnsatisfiable: v1.ScheduleAnyway, NodeAffinityPolicy: policy(), NodeTaintsPolicy: policy(),
		}
		if d.Chance(hard) {
			c.WhenUnsatisfiable = v1.DoNotSchedule
			c.MinDomains = plugintest.Pick(d, nil, new(int32(2)), new(int32(4)))
		}
		if c.LabelSelector != nil && d.Chance(20) {
			c.MatchLabelKeys = []string{plugintest.Pick(d, "app", "tier")}
		}
		all = append(all, c)
	}
	return all
}

// group replaces the Services and ReplicaSets of a table and the reference by random ones.
func (w *reference) group(d plugintest.Dice) {
	set := func(namespace string, g nodetable.Group, s *metav1.LabelSelector) {
		w.Table.SetGroup(namespace, g, s)
	}
	w.services, w.replicaSets = nil, nil
	for _, namespace := range d.Namespaces() {
		for i := range 2 {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i), Namespace: namespace}}
			group := nodetable.Group{APIVersion: "v1", Kind: "Service", Name: s.Name}
			if d.Chance(50) {
				set(namespace, group, nil)
				continue
			}
			s.Spec.Selector = d.Labels()
			w.services = append(w.services, s)
			set(namespace, group, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		}
		replicas := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: namespace}, Spec: appsv1.ReplicaSetSpec{Selector: d.Selector()}}
		w.replicaSets = append(w.replicaSets, replicas)
		set(namespace, nodetable.Group{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set"}, replicas.Spec.Selector)
	}
}

func TestSpreadSaysWhatTheReferenceDoes(t *testing.T) {
	compareWithReference(t, 400)
}

func TestCampaignSpreadSaysWhatTheReferenceDoes(t *testing.T) {
	campaign.Only(t)
	compareWithReference(t, campaign.Size(20_000, 400))
}

func compareWithReference(t *testing.T, clusters int) {
	d := plugintest.Dice{Random: rand.New(rand.NewPCG(3, 0))}
	said := map[string]int{}
	for i := range clusters {
		w := &reference{T: t, args: &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}}
		if d.Chance(50) {
			w.args.DefaultingType = config.ListDefaulting
			for _, c := range constrain(d, d.Topologies(), 50) {
				c.LabelSelector, c.MatchLabelKeys = nil, nil
				w.args.DefaultConstraints = append(w.args.DefaultConstraints, c)
			}
		}
		w.Objects = d.Objects(plugintest.New(t), 12, 40, func(*v1.Pod) {})
		w.group(d)
		plugin := w.Make(New, w.args)
		for range 4 {
			pod := d.Pod("probe")
			pod.DeletionTimestamp = nil
			pod.Spec.TopologySpreadConstraints = constrain(d, d.Topologies(), 60)
			if d.Chance(60) {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set", UID: "set", Controller: new(true)}}
			}
			v := w.Evaluate(plugin, w.Digest(pod))
			rejected := w.rejected(pod)
			v.Holds(t, fmt.Sprint("case ", i), rejected, w.scores(pod, rejected))
			for _, text := range rejected {
				said[text]++
			}
			said["scores"] += len(v.Scores)
			w.whatIf(d, v.Cycle, pod)
			if d.Chance(30) {
				w.group(d)
			}
		}
	}
	t.Log(said)
}

// whatIf filters single nodes inside tries and after them.
func (w *reference) whatIf(d plugintest.Dice, c *framework.Cycle, pod *v1.Pod) {
	w.Helper()
	w.Table.Try()
	supposed := *w
	supposed.Objects = w.Suppose(d, func(*v1.Pod) {})
	supposed.fits(c, pod)
	w.Table.Undo()
	w.fits(c, pod)
}

func (w *reference) fits(c *framework.Cycle, pod *v1.Pod) {
	w.Helper()
	rejected := w.rejected(pod)
	for _, node := range w.Nodes {
		fits, _, status := c.Fits(w.Table.Row(nodetable.Intern(node.Name)))
		if want := rejected[node.Name] == ""; fits != want || !status.OK() {
			w.Fatalf("what if: pod fits %s: %t (%s), the reference says %t", node.Name, fits, status.Message(), want)
		}
	}
}
