package nodetable

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podresource "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"k8s.io/component-helpers/node/topology"

	"github.com/evictd/evictd/internal/require"
)

// reference is a naive cluster: objects in maps, counted for each question.
type reference struct {
	nodes      map[string]*v1.Node
	pods       map[types.UID]*v1.Pod // by spec.nodeName, of known and unknown nodes
	namespaces map[string]map[string]string
	zones      []string            // in the order of arrival
	inZone     map[string][]string // nodes in the order of arrival
	imageSize  map[string]int64
}

func newReference() *reference {
	return &reference{nodes: map[string]*v1.Node{}, pods: map[types.UID]*v1.Pod{}, namespaces: map[string]map[string]string{}, inZone: map[string][]string{}, imageSize: map[string]int64{}}
}

func (w *reference) clone() *reference {
	c := *w
	c.nodes, c.pods, c.namespaces = maps.Clone(w.nodes), maps.Clone(w.pods), maps.Clone(w.namespaces)
	return &c
}

func (w *reference) setNode(n *v1.Node) {
	zone := topology.GetZoneKey(n)
	if was := w.nodes[n.Name]; was == nil || topology.GetZoneKey(was) != zone {
		w.leaveZone(n.Name)
		if len(w.inZone[zone]) == 0 {
			w.zones = append(w.zones, zone)
		}
		w.inZone[zone] = append(w.inZone[zone], n.Name)
	}
	if was := w.nodes[n.Name]; was == nil || !reflect.DeepEqual(was.Status.Images, n.Status.Images) {
		delete(w.nodes, n.Name)
		w.forgetImages()
	}
	w.nodes[n.Name] = n
	for _, image := range n.Status.Images {
		for _, name := range image.Names {
			if _, known := w.imageSize[name]; !known {
				w.imageSize[name] = image.SizeBytes
			}
		}
	}
}

func (w *reference) removeNode(name string) {
	w.leaveZone(name)
	delete(w.nodes, name)
	w.forgetImages()
}

func (w *reference) leaveZone(name string) {
	for zone, names := range w.inZone {
		if i := slices.Index(names, name); i >= 0 {
			w.inZone[zone] = slices.Delete(slices.Clone(names), i, i+1)
			if len(w.inZone[zone]) == 0 {
				w.zones = slices.DeleteFunc(slices.Clone(w.zones), func(z string) bool { return z == zone })
			}
		}
	}
}

func (w *reference) forgetImages() {
	for name := range w.imageSize {
		if len(w.having(name)) == 0 {
			delete(w.imageSize, name)
		}
	}
}

func (w *reference) having(image string) []string {
	var names []string
	for _, n := range w.nodes {
		if slices.ContainsFunc(n.Status.Images, func(i v1.ContainerImage) bool { return slices.Contains(i.Names, image) }) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *reference) order() []string {
	var order []string
	for turn := 0; len(order) < len(w.nodes); turn++ {
		for _, zone := range w.zones {
			if names := w.inZone[zone]; turn < len(names) {
				order = append(order, names[turn])
			}
		}
	}
	return order
}

func (w *reference) on(node string) []*v1.Pod {
	var pods []*v1.Pod
	for _, p := range w.pods {
		if p.Spec.NodeName == node {
			pods = append(pods, p)
		}
	}
	return pods
}

// means reports whether a term of the pod `owner` matches another pod.
func (w *reference) means(t *testing.T, owner *v1.Pod, term *v1.PodAffinityTerm, other *v1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	require.NoError(t, err)
	namespaces, byLabels := term.Namespaces, labels.Nothing()
	if term.NamespaceSelector != nil {
		if byLabels, err = metav1.LabelSelectorAsSelector(term.NamespaceSelector); err != nil {
			t.Fatal(err)
		}
	} else if len(namespaces) == 0 {
		namespaces = []string{owner.Namespace}
	}
	return (slices.Contains(namespaces, other.Namespace) || byLabels.Matches(labels.Set(w.namespaces[other.Namespace]))) && selector.Matches(labels.Set(other.Labels))
}

// check compares the table with the counts of the reference. The probe is a pod without
// a node.
func (w *reference) check(t *testing.T, table *Table, probe *v1.Pod) {
	t.Helper()
	w.checkColumns(t, table)
	w.checkNodes(t, table)
	w.checkTopologies(t, table)
	digest := NewPod(probe)
	w.checkSelection(t, table, probe, digest)
	w.checkCounters(t, table, probe, digest)
	w.checkTerms(t, table, probe, digest)
	w.checkPorts(t, table, digest)
	w.checkVolumes(t, table, digest)
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		t.Fatalf("%s: the table says %s, the reference %s", what, g, w)
	}
}

// checkLacking tests amounts around the free and the allocatable one.
func checkLacking(t *testing.T, c Amounts, allocatable, requested int64, row Row) {
	t.Helper()
	free := allocatable - requested
	for _, request := range []int64{1, free, free + 1, allocatable, allocatable + 1} {
		lacking, never := c.Lacking(request, int(row>>6))
		bit := uint64(1) << (row & 63)
		if got, want := lacking&bit != 0, request > free; got != want {
			t.Fatalf("%d of %d free is lacking: %t", request, free, got)
		}
		if got, want := lacking&never&bit != 0, request > free && request > allocatable; got != want {
			t.Fatalf("%d of %d is never there: %t", request, allocatable, got)
		}
	}
}

func (w *reference) checkColumns(t *testing.T, table *Table) {
	t.Helper()
	equal(t, "number of nodes", table.Len(), len(w.nodes))
	equal(t, "rows that have a node", table.Alive().Count(), len(w.nodes))
	placed := 0
	for name, n := range w.nodes {
		row := table.Row(Intern(name))
		pods := w.on(name)
		placed += len(pods)
		requested, nonZero := v1.ResourceList{}, v1.ResourceList{}
		for _, p := range pods {
			add(requested, podresource.PodRequests(p, podresource.PodResourcesOptions{}))
			add(nonZero, podresource.PodRequests(p, podresource.PodResourcesOptions{NonMissingContainerRequests: v1.ResourceList{
				v1.ResourceCPU: *milli(DefaultMilliCPU), v1.ResourceMemory: *bytes(DefaultMemory),
			}}))
		}
		a := n.Status.Allocatable
		equal(t, name+" allocatable", []int64{table.CPU.Allocatable[row], table.Memory.Allocatable[row], table.Ephemeral.Allocatable[row], table.Pods.Allocatable[row]},
			[]int64{a.Cpu().MilliValue(), a.Memory().Value(), a.StorageEphemeral().Value(), a.Pods().Value()})
		equal(t, name+" requested", []int64{table.CPU.Requested[row], table.Memory.Requested[row], table.Ephemeral.Requested[row], table.Pods.Requested[row]},
			[]int64{requested.Cpu().MilliValue(), sum(pods, v1.ResourceMemory), sum(pods, v1.ResourceEphemeralStorage), int64(len(pods))})
		for _, c := range []*Column{&table.CPU, &table.Memory, &table.Ephemeral, &table.Pods} {
			checkLacking(t, c, c.Allocatable[row], c.Requested[row], row)
		}
		equal(t, name+" non-zero cpu", table.NonZeroCPU[row], nonZero.Cpu().MilliValue())
		for _, resource := range extendedNames {
			quantity := a[resource]
			c := table.Extended(Intern(string(resource)))
			allocatable, requested := c.On(row)
			equal(t, name+" "+string(resource), [2]int64{allocatable, requested}, [2]int64{quantity.Value(), sum(pods, resource)})
			checkLacking(t, c, allocatable, requested, row)
		}
		var uids, want []types.UID
		for _, p := range table.PodsOn(row) {
			uids = append(uids, p.UID)
			if found, at := table.Find(p.UID); found != p || at != row {
				t.Fatalf("pod %s is not found where it is", p)
			}
		}
		for _, p := range pods {
			want = append(want, p.UID)
		}
		slices.Sort(uids)
		slices.Sort(want)
		equal(t, name+" pods", uids, want)
	}
	equal(t, "pods on nodes", table.PodCount(), placed)
}

// sum rounds each request up to units, as the digest does.
func sum(pods []*v1.Pod, name v1.ResourceName) (total int64) {
	for _, p := range pods {
		q := podresource.PodRequests(p, podresource.PodResourcesOptions{})[name]
		total += q.Value()
	}
	return total
}

func (w *reference) checkNodes(t *testing.T, table *Table) {
	t.Helper()
	var order []string
	for _, row := range table.Order() {
		order = append(order, table.Node(row).Name.Value())
	}
	equal(t, "order", order, w.order())
	for _, image := range imageNames {
		use := table.Image(Intern(image))
		if use == nil {
			use = &ImageUse{}
		}
		equal(t, "nodes with "+image, names(table, use.Rows), w.having(image))
		equal(t, "size of "+image, use.Size, w.imageSize[image])
	}
	var cordoned []string
	for name, n := range w.nodes {
		if n.Spec.Unschedulable {
			cordoned = append(cordoned, name)
		}
	}
	slices.Sort(cordoned)
	equal(t, "cordoned", names(table, table.Unschedulable().Append(nil)), cordoned)
}

func names(table *Table, rows []Row) []string {
	var all []string
	for _, row := range rows {
		all = append(all, table.Node(row).Name.Value())
	}
	slices.Sort(all)
	return all
}

func (w *reference) checkTopologies(t *testing.T, table *Table) {
	t.Helper()
	for _, key := range topologyNames {
		o := table.Topology(Intern(key))
		domains := map[string]int32{}
		for name, n := range w.nodes {
			value, labelled := n.Labels[key]
			domain := o.Of[table.Row(Intern(name))]
			if labelled != (domain != NoDomain) || labelled != o.Labelled.Has(table.Row(Intern(name))) || labelled && o.Values[domain].Value() != value {
				t.Fatalf("%s of %s is %q, not domain %d", key, name, value, domain)
			}
			if labelled {
				domains[value]++
			}
		}
		got := map[string]int32{}
		for domain, n := range o.Nodes {
			if n > 0 {
				got[o.Values[domain].Value()] = n
			}
		}
		equal(t, "nodes by "+key, got, domains)
		equal(t, "domains of "+key, o.Live, len(domains))
		equal(t, "nodes labelled "+key, o.Labelled.Count(), total(domains))
		for row, domain := range o.Of {
			if domain != NoDomain && !table.Alive().Has(Row(row)) {
				t.Fatalf("row %d has no node and the %s %s", row, key, o.Values[domain].Value())
			}
		}
	}
}

func total(by map[string]int32) (sum int) {
	for _, n := range by {
		sum += int(n)
	}
	return sum
}

func (w *reference) checkSelection(t *testing.T, table *Table, probe *v1.Pod, digest *Pod) {
	t.Helper()
	affinity := nodeaffinity.GetRequiredNodeAffinity(probe)
	var fitting, repelling []string
	for name, n := range w.nodes {
		match, err := affinity.Match(n)
		require.NoError(t, err)
		if alone := digest.Nodes == nil || digest.Nodes.Matches(NewNode(n)); alone != match {
			t.Fatalf("node %s alone: matches %t, the reference says %t: %s", name, alone, match, digest.Nodes.Key.Value())
		}
		if match {
			fitting = append(fitting, name)
		}
		if _, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, probe.Spec.Tolerations, func(t *v1.Taint) bool {
			return t.Effect != v1.TaintEffectPreferNoSchedule
		}, false); untolerated {
			repelling = append(repelling, name)
		}
	}
	slices.Sort(fitting)
	slices.Sort(repelling)
	equal(t, "nodes selected", names(table, table.Select(digest.Nodes).Append(nil)), fitting)
	equal(t, "nodes whose taints repel", names(table, table.Tainted(&digest.Tolerations).Append(nil)), repelling)
}

func (w *reference) checkCounters(t *testing.T, table *Table, probe *v1.Pod, digest *Pod) {
	t.Helper()
	own := []v1.PodAffinityTerm{}
	if a := probe.Spec.Affinity; a.PodAffinity != nil {
		own = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	for i := range own {
		counter := table.Counter(digest.Affinity[i].Pods)
		o := table.Topology(digest.Affinity[i].Topology)
		counts := counter.In(o)
		total, by := 0, map[string]int32{}
		for name, n := range w.nodes {
			here := int32(0)
			for _, p := range w.on(name) {
				if w.means(t, probe, &own[i], p) {
					here++
				}
			}
			equal(t, "pods counted on "+name, counter.On(table.Row(Intern(name))), here)
			total += int(here)
			if value, labelled := n.Labels[own[i].TopologyKey]; labelled {
				by[value] += here
			}
		}
		equal(t, "pods counted", counter.Total(), total)
		got := map[string]int32{}
		for domain, n := range counts {
			if o.Nodes[domain] > 0 {
				got[o.Values[domain].Value()] = n
			} else if n != 0 {
				t.Fatalf("domain %d has no node and counts %d pods", domain, n)
			}
		}
		equal(t, "pods by "+own[i].TopologyKey, got, by)
	}
	if len(own) > 0 {
		companions := 0
		for _, p := range w.pods {
			strange := func(term v1.PodAffinityTerm) bool { return !w.means(t, probe, &term, p) }
			if w.nodes[p.Spec.NodeName] != nil && !slices.ContainsFunc(own, strange) {
				companions++
			}
		}
		equal(t, "companions", table.Counter(digest.Companions).Total(), companions)
	}
	living := NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "1"}})
	total := 0
	for _, p := range w.pods {
		if w.nodes[p.Spec.NodeName] != nil && p.Labels["app"] == "1" && p.Namespace == "blue" && p.DeletionTimestamp == nil {
			total++
		}
	}
	equal(t, "living pods", table.Counter(NewMatcher([]string{"blue"}, nil, living, true)).Total(), total)
}

// checkTerms compares the terms that match the probe, with the number of pods by
// domain that have them.
func (w *reference) checkTerms(t *testing.T, table *Table, probe *v1.Pod, digest *Pod) {
	t.Helper()
	want := [termKinds]map[string]int32{{}, {}, {}, {}}
	for _, p := range w.pods {
		n := w.nodes[p.Spec.NodeName]
		if n == nil {
			continue
		}
		note := func(kind TermKind, term *v1.PodAffinityTerm, weight int32) {
			if value, labelled := n.Labels[term.TopologyKey]; labelled && w.means(t, p, term, probe) {
				want[kind][fmt.Sprint(term.TopologyKey, "=", value, " ", weight)]++
			}
		}
		notes := func(kind TermKind, required []v1.PodAffinityTerm, preferred []v1.WeightedPodAffinityTerm) {
			for i := range required {
				note(kind, &required[i], 0)
			}
			for i := range preferred {
				note(kind+PreferredAffinity-RequiredAffinity, &preferred[i].PodAffinityTerm, preferred[i].Weight)
			}
		}
		if a := p.Spec.Affinity.PodAffinity; a != nil {
			notes(RequiredAffinity, a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
		}
		if a := p.Spec.Affinity.PodAntiAffinity; a != nil {
			notes(RequiredAntiAffinity, a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution)
		}
	}
	for kind := range termKinds {
		got := map[string]int32{}
		for _, c := range table.CarriedMatching(kind, digest, nil) {
			o := table.Topology(c.Topology)
			for domain, n := range c.In(o) {
				if n > 0 {
					got[fmt.Sprint(o.Key.Value(), "=", o.Values[domain].Value(), " ", c.Weight)] += n
				}
			}
		}
		equal(t, fmt.Sprint("terms of kind ", kind), got, want[kind])
	}
}

func (w *reference) checkPorts(t *testing.T, table *Table, digest *Pod) {
	t.Helper()
	var want []string
	for name := range w.nodes {
		if slices.ContainsFunc(w.on(name), func(p *v1.Pod) bool { return Overlap(digest.Ports, ports(p)) }) {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	taken := Bits(nil).Emptied(table.Rows())
	table.PortConflicts(digest.Ports, taken)
	equal(t, "nodes with taken ports", names(table, taken.Append(nil)), want)
}
