package interpod

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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
	args *config.InterPodAffinityArgs
}

func (w *reference) matches(s *metav1.LabelSelector, set map[string]string) bool {
	w.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		w.Fatal(err)
	}
	return selector.Matches(labels.Set(set))
}

// means reports whether a term of a pod matches another.
func (w *reference) means(owner *v1.Pod, term v1.PodAffinityTerm, other *v1.Pod) bool {
	namespaces := term.Namespaces
	if len(namespaces) == 0 && term.NamespaceSelector == nil {
		namespaces = []string{owner.Namespace}
	}
	if !slices.Contains(namespaces, other.Namespace) && (term.NamespaceSelector == nil || !w.matches(term.NamespaceSelector, w.Namespaces[other.Namespace])) {
		return false
	}
	return w.matches(term.LabelSelector, other.Labels)
}

// Terms of a pod by kind; the weights of required ones are 0.
func affinity(p *v1.Pod) (required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	a := p.Spec.Affinity.PodAffinity
	return a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
}

func antiAffinity(p *v1.Pod) (required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
	a := p.Spec.Affinity.PodAntiAffinity
	return a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution
}

func share(a, b *v1.Node, key string) bool {
	value, found := a.Labels[key]
	other, too := b.Labels[key]
	return found && too && value == other
}

func (w *reference) node(p *v1.Pod) *v1.Node {
	return w.Nodes[slices.IndexFunc(w.Nodes, func(n *v1.Node) bool { return n.Name == p.Spec.NodeName })]
}

// around reports whether a pod in the domain of a node is such.
func (w *reference) around(node *v1.Node, key string, such func(*v1.Pod) bool) bool {
	return slices.ContainsFunc(w.Pods, func(p *v1.Pod) bool { return share(w.node(p), node, key) && such(p) })
}

// rejected has the reasons by node.
func (w *reference) rejected(pod *v1.Pod) map[string]string {
	rejected := map[string]string{}
	with, _ := affinity(pod)
	without, _ := antiAffinity(pod)
	companion := func(p *v1.Pod) bool {
		return !slices.ContainsFunc(with, func(term v1.PodAffinityTerm) bool { return !w.means(pod, term, p) })
	}
	first := companion(pod)
	for _, p := range w.Pods {
		for _, term := range with {
			if _, found := w.node(p).Labels[term.TopologyKey]; found && companion(p) {
				first = false
			}
		}
	}
	for _, node := range w.Nodes {
		why := ""
		for _, p := range w.Pods {
			terms, _ := antiAffinity(p)
			for _, term := range terms {
				if share(w.node(p), node, term.TopologyKey) && w.means(p, term, pod) {
					why = "node(s) didn't satisfy existing pods anti-affinity rules"
				}
			}
		}
		for _, term := range without {
			if w.around(node, term.TopologyKey, func(p *v1.Pod) bool { return w.means(pod, term, p) }) {
				why = "node(s) didn't match pod anti-affinity rules"
			}
		}
		for _, term := range with {
			if _, found := node.Labels[term.TopologyKey]; !found || !first && !w.around(node, term.TopologyKey, companion) {
				why = "never: node(s) didn't match pod affinity rules"
			}
		}
		if why != "" {
			rejected[node.Name] = why
		}
	}
	return rejected
}

// skips reports whether PreFilter skips the pod.
func (w *reference) skips(pod *v1.Pod) bool {
	with, _ := affinity(pod)
	without, _ := antiAffinity(pod)
	return len(with) == 0 && len(without) == 0 && len(w.rejected(pod)) == 0
}

func (w *reference) scores(pod *v1.Pod, rejected map[string]string) map[string]int64 {
	_, likes := affinity(pod)
	_, dislikes := antiAffinity(pod)
	if w.args.IgnorePreferredTermsOfExistingPods && len(likes) == 0 && len(dislikes) == 0 || len(rejected) == len(w.Nodes) {
		return nil
	}
	worth := map[string]int64{} // by key=value
	weigh := func(owner *v1.Pod, term v1.PodAffinityTerm, other, placed *v1.Pod, weight int32) {
		if value, found := w.node(placed).Labels[term.TopologyKey]; found && w.means(owner, term, other) {
			worth[term.TopologyKey+"="+value] += int64(weight)
		}
	}
	for _, p := range w.Pods {
		for _, term := range likes {
			weigh(pod, term.PodAffinityTerm, p, p, term.Weight)
		}
		for _, term := range dislikes {
			weigh(pod, term.PodAffinityTerm, p, p, -term.Weight)
		}
		needs, likes := affinity(p)
		_, dislikes := antiAffinity(p)
		for _, term := range needs {
			if *w.args.HardPodAffinityWeight > 0 {
				weigh(p, term, pod, p, *w.args.HardPodAffinityWeight)
			}
		}
		for _, term := range likes {
			weigh(p, term.PodAffinityTerm, pod, p, term.Weight)
		}
		for _, term := range dislikes {
			weigh(p, term.PodAffinityTerm, pod, p, -term.Weight)
		}
	}
	if len(worth) == 0 {
		return nil
	}
	scores := map[string]int64{}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, node := range w.Nodes {
		if rejected[node.Name] == "" {
			scores[node.Name] = 0
			for key, value := range node.Labels {
				scores[node.Name] += worth[key+"="+value]
			}
			least, most = min(least, scores[node.Name]), max(most, scores[node.Name])
		}
	}
	for name, score := range scores {
		scores[name] = 0
		if most > least {
			scores[name] = int64(100 * (float64(score-least) / float64(most-least)))
		}
	}
	return scores
}

// relate adds random terms to a pod.
func relate(d plugintest.Dice) func(*v1.Pod) {
	term := func() v1.PodAffinityTerm {
		t := v1.PodAffinityTerm{LabelSelector: d.Selector(), TopologyKey: plugintest.Pick(d, d.Topologies()...)}
		if d.Chance(20) {
			t.Namespaces = []string{plugintest.Pick(d, d.Namespaces()...)}
		}
		if d.Chance(25) {
			t.NamespaceSelector = d.Selector()
		}
		return t
	}
	terms := func() (required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
		for range max(0, d.Random.IntN(7)-4) {
			required = append(required, term())
		}
		for range max(0, d.Random.IntN(6)-3) {
			preferred = append(preferred, v1.WeightedPodAffinityTerm{Weight: int32(1 + d.Random.IntN(100)), PodAffinityTerm: term()})
		}
		return required, preferred
	}
	return func(p *v1.Pod) {
		with, likes := terms()
		without, dislikes := terms()
		p.Spec.Affinity = &v1.Affinity{
			PodAffinity:     &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: with, PreferredDuringSchedulingIgnoredDuringExecution: likes},
			PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: without, PreferredDuringSchedulingIgnoredDuringExecution: dislikes},
		}
	}
}

func TestInterPodSaysWhatTheReferenceDoes(t *testing.T) {
	compareWithReference(t, 400)
}

func TestCampaignInterPodSaysWhatTheReferenceDoes(t *testing.T) {
	campaign.Only(t)
	compareWithReference(t, campaign.Size(20_000, 400))
}

func compareWithReference(t *testing.T, clusters int) {
	d := plugintest.Dice{Random: rand.New(rand.NewPCG(4, 0))}
	said := map[string]int{}
	for i := range clusters {
		w := &reference{T: t, args: &config.InterPodAffinityArgs{HardPodAffinityWeight: new(plugintest.Pick(d, int32(0), 1, 50)), IgnorePreferredTermsOfExistingPods: d.Chance(30)}}
		w.Objects = d.Objects(plugintest.New(t), 12, plugintest.Pick(d, 4, 12, 30), relate(d))
		plugin := w.Make(New, w.args)
		for range 4 {
			pod := d.Pod("probe")
			relate(d)(pod)
			v := w.Evaluate(plugin, w.Digest(pod))
			rejected := w.rejected(pod)
			v.Holds(t, fmt.Sprint("case ", i), rejected, w.scores(pod, rejected))
			for _, text := range rejected {
				said[text]++
			}
			said["scores"] += len(v.Scores)
			w.whatIf(d, v.Cycle, pod)
		}
	}
	t.Log(said)
}

// whatIf filters single nodes inside tries and after them. A plugin that skipped
// the pod must not reject any.
func (w *reference) whatIf(d plugintest.Dice, c *framework.Cycle, pod *v1.Pod) {
	w.Helper()
	skips := w.skips(pod)
	w.Table.Try()
	supposed := *w
	supposed.Objects = w.Suppose(d, relate(d))
	supposed.fits(c, pod, skips)
	w.Table.Undo()
	w.fits(c, pod, skips)
}

func (w *reference) fits(c *framework.Cycle, pod *v1.Pod, skips bool) {
	w.Helper()
	rejected := w.rejected(pod)
	for _, node := range w.Nodes {
		fits, _, status := c.Fits(w.Table.Row(nodetable.Intern(node.Name)))
		if want := skips || rejected[node.Name] == ""; fits != want || !status.OK() {
			w.Fatalf("what if: pod fits %s: %t (%s), the reference says %t", node.Name, fits, status.Message(), want)
		}
	}
}
