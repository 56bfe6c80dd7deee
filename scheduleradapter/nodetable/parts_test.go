package nodetable

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func node(name string, labels map[string]string) *Node {
	return NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func labelled(t *testing.T, uid, app string) *Pod {
	t.Helper()
	return NewPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Labels: map[string]string{"app": app}}})
}

func counting(t *testing.T, app string) *Matcher {
	t.Helper()
	s := NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": app}})
	return NewMatcher([]string{""}, nil, s, false)
}

// rule: S4.6
func TestNodesAreTakenFromEachZoneInTurn(t *testing.T) {
	table := New()
	for i, where := range []string{"/", "r1/", "/z2", "r1/z2", "r1/z2", "r1/z3", "r2/z2", "r2/z2", "r2/z2"} {
		region, zone, _ := strings.Cut(where, "/")
		labels := map[string]string{}
		for key, value := range map[string]string{v1.LabelTopologyRegion: region, v1.LabelTopologyZone: zone} {
			if value != "" {
				labels[key] = value
			}
		}
		table.SetNode(node(fmt.Sprint(i), labels))
	}
	var order []string
	for _, row := range table.Order() {
		order = append(order, table.Node(row).Name.Value())
	}
	if got, want := strings.Join(order, " "), "0 1 2 3 5 6 4 7 8"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestCounterThatIsNotAskedForIsDropped(t *testing.T) {
	table := New()
	table.SetNode(node("n", nil))
	table.Place(labelled(t, "p", "kept"), 0)
	for i := range 20 * keptPerCycle {
		table.Counter(counting(t, fmt.Sprint("app-", i)))
		if got := table.Counter(counting(t, "kept")).Total(); got != 1 {
			t.Fatalf("%d pods after %d counters, want 1", got, i)
		}
	}
	if n, filed := len(table.counters.byKey), len(table.counters.index.byLabel); n > 4*keptPerCycle || filed != n {
		t.Errorf("%d counters are left, %d of them filed", n, filed)
	}
}

func TestFollowerThatFellBehindHasToLookAtAllRows(t *testing.T) {
	table := New()
	for i := range 100 {
		table.SetNode(node(fmt.Sprint("n", i), nil))
	}
	if _, ok := table.ChangedSince(0); ok {
		t.Error("no reader has followed from the beginning")
	}
	mark := table.Mark()
	pod := labelled(t, "p", "web")
	table.Place(pod, 7)
	table.Place(pod, 9)
	rows, ok := table.ChangedSince(mark)
	slices.Sort(rows)
	if !ok || !slices.Equal(slices.Compact(slices.Clone(rows)), []Row{7, 9}) {
		t.Errorf("changed rows %v", rows)
	}
	for range 3 * keptTrail {
		table.Place(pod, 8)
	}
	if _, ok := table.ChangedSince(mark); ok {
		t.Error("the trail does not reach back so far")
	}
	if n := len(table.trail.rows); n > 2*keptTrail {
		t.Errorf("the trail has %d rows", n)
	}
}

func TestChangedRowsAreListedBeyondTheTrail(t *testing.T) {
	table := New()
	for i := range 100 {
		table.SetNode(node(fmt.Sprint("n", i), nil))
	}
	if n := len(table.ChangedRows(0)); n != 100 {
		t.Errorf("%d rows have changed since the beginning, expected 100", n)
	}
	mark := table.Mark()
	pod := labelled(t, "p", "web")
	table.Place(pod, 5)
	table.RemoveNode(table.Node(7).Name)
	for range 3 * keptTrail {
		table.Place(pod, 8)
	}
	if _, ok := table.ChangedSince(mark); ok {
		t.Fatal("the trail does not reach back so far")
	}
	if rows := table.ChangedRows(mark); !slices.Equal(rows, []Row{5, 7, 8}) {
		t.Errorf("changed rows %v, expected 5, 7 and 8", rows)
	}
	if rows := table.ChangedRows(table.Mark()); len(rows) != 0 {
		t.Errorf("changed rows %v, expected none", rows)
	}
}

func TestCacheForgetsWhatWasNotAskedForTheLongest(t *testing.T) {
	c := NewRecent[string, int](2)
	for i, key := range []string{"a", "b"} {
		value, known := c.At(key)
		if known {
			t.Fatalf("%s is known", key)
		}
		*value = i + 1
	}
	c.At("a")
	if value, known := c.At("c"); known || *value != 2 {
		t.Errorf("c has the place of %d, want that of b", *value)
	}
	if value, known := c.At("a"); !known || *value != 1 {
		t.Errorf("a is %d", *value)
	}
	if _, known := c.At("b"); known {
		t.Error("b is still known")
	}
	for _, key := range []string{"d", "c", "e", "d"} {
		c.Bound(3)
		c.At(key)
	}
	if c.Bound(1); len(c.at) != 1 || c.at["d"] == nil {
		t.Errorf("%d keys are known, expected only d", len(c.at))
	}
}

func TestMemosAreBoundedByBytes(t *testing.T) {
	table := New()
	for rows, want := range map[int][2]int{64: {256, 64}, 1 << 18: {256, 64}, 1 << 20: {64, 16}, 1 << 27: {0, 0}} {
		table.nodes = make([]*Node, rows)
		if got := [2]int{table.KeptMemos(1), table.KeptMemos(4)}; got != want {
			t.Errorf("%d rows: %v memos of 1 and of 4 bytes a row, expected %v", rows, got, want)
		}
	}
}

func TestNodeMayNotChangeInsideATry(t *testing.T) {
	table := New()
	table.Try()
	defer func() {
		if recover() == nil {
			t.Error("the node was taken over")
		}
	}()
	table.SetNode(node("n", nil))
}

func TestImageWithoutATagIsTheLatest(t *testing.T) {
	for image, want := range map[string]string{
		"web": "web:latest", "web:1": "web:1", "reg:5000/web": "reg:5000/web:latest", "reg:5000/web:1": "reg:5000/web:1", "web@sha256:00": "web@sha256:00",
	} {
		if got := tagged(image); got != want {
			t.Errorf("%s is %s, want %s", image, got, want)
		}
	}
}

func TestSelectorsThatSayTheSameShareACounter(t *testing.T) {
	exists := metav1.LabelSelectorRequirement{Key: "tier", Operator: metav1.LabelSelectorOpExists}
	oneOf := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}
	a := NewSelector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{exists}})
	b := NewSelector(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{exists, oneOf, exists}})
	if a.key != b.key {
		t.Errorf("keys %s and %s", a.key, b.key)
	}
	if NewMatcher([]string{"x", "y", "x"}, nil, a, true).Key != NewMatcher([]string{"y", "x"}, nil, b, true).Key {
		t.Error("the matchers' keys differ")
	}
}

func TestTermThatDoesNotParseMatchesNothing(t *testing.T) {
	for _, c := range []struct {
		key, operator string
		values        []string
	}{{"k", "Like", []string{"v"}}, {"k", "In", nil}, {"k", "Exists", []string{"v"}}, {"k", "NotIn", []string{"no value"}}, {"no key", "DoesNotExist", nil}} {
		s := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: c.key, Operator: metav1.LabelSelectorOperator(c.operator), Values: c.values}}}
		if NewSelector(s).Matches(NewLabels(map[string]string{"k": "v"})) || NewSelector(s).Matches(nil) {
			t.Errorf("label selector %v matches", c)
		}
	}
	named := []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{"n"}}}
	for _, c := range []struct {
		name  string
		terms []v1.NodeSelectorTerm
		want  bool
	}{
		{"an odd term", []v1.NodeSelectorTerm{expression("k", "Gt", "abc")}, false},
		{"an odd term and a name", []v1.NodeSelectorTerm{{MatchExpressions: expression("k", "Lt", "1.5").MatchExpressions, MatchFields: named}}, false},
		{"an odd requirement beside one that matches", []v1.NodeSelectorTerm{{MatchExpressions: append(expression("k", "Gt", "abc").MatchExpressions, expression("k", "Exists").MatchExpressions...)}}, false},
		{"an odd field", []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.uid", Operator: v1.NodeSelectorOpNotIn, Values: []string{"u"}}}}}, false},
		{"an odd term beside one that matches", []v1.NodeSelectorTerm{expression("k", "Gt", "abc"), expression("k", "Gt", "4")}, true},
	} {
		s, n, table := NewNodeSelector(nil, &v1.NodeSelector{NodeSelectorTerms: c.terms}), node("n", map[string]string{"k": "5"}), New()
		table.SetNode(n)
		if got := s.Matches(n); got != c.want || table.Select(s).Has(0) != c.want {
			t.Errorf("%s: matches %t, selects %t, want %t", c.name, got, table.Select(s).Has(0), c.want)
		}
	}
}

func expression(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
}

func TestChangesOfANodeAreNamed(t *testing.T) {
	was := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}}
	for _, c := range []struct {
		name   string
		change func(*v1.Node)
		want   Change
	}{
		{"a heartbeat is none", func(n *v1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, 0},
		{"a condition", func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionFalse }, ChangedConditions},
		{"cordoned", func(n *v1.Node) { n.Spec.Unschedulable = true }, ChangedTaints},
		{"a zone is a label too", func(n *v1.Node) { n.Labels = map[string]string{v1.LabelTopologyZone: "z"} }, ChangedLabels | ChangedZone},
		{"an annotation", func(n *v1.Node) { n.Annotations = map[string]string{"k": "v"} }, ChangedAnnotations},
		{"a feature", func(n *v1.Node) { n.Status.DeclaredFeatures = []string{"f"} }, ChangedFeatures},
		{"an image", func(n *v1.Node) { n.Status.Images = []v1.ContainerImage{{Names: []string{"i"}}} }, ChangedImages},
	} {
		is := was.DeepCopy()
		c.change(is)
		if got := Changes(NewNode(was), NewNode(is)); got != c.want {
			t.Errorf("%s: changes %b, want %b", c.name, got, c.want)
		}
	}
}
