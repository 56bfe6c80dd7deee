package profile

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
	"github.com/evictd/evictd/scheduleradapter/plugins/pressure"
	"github.com/evictd/evictd/scheduleradapter/plugins/resources"
	"github.com/evictd/evictd/scheduleradapter/plugins/taints"
)

// draws are the random numbers of a scheduler with their bounds.
type draws struct {
	source *rand.PCG
	all    [][2]int
}

func (d *draws) Fork() framework.Random {
	source := *d.source
	return &draws{source: &source}
}

func (d *draws) IntN(n int) int {
	drawn := rand.New(d.source).IntN(n)
	d.all = append(d.all, [2]int{n, drawn})
	return drawn
}

// cacheTwin is a scheduler with two profiles, the default one with NodePressure and the
// same with another weight and without the filter of taints, with the cache of scores or
// without.
type cacheTwin struct {
	*cycle.Scheduler
	draws draws
}

const otherProfile = "other"

func newCacheTwin(t *testing.T, seed uint64, caches bool) *cacheTwin {
	t.Helper()
	w := &cacheTwin{draws: draws{source: rand.NewPCG(seed, 1)}}
	file := &config.File{}
	file.PercentageOfNodesToScore = new([...]int32{100, 0, 20}[seed%3])
	for i, name := range []string{v1.DefaultSchedulerName, otherProfile} {
		weight := int32(1 + 8*i)
		plugins := &schedulerconfig.Plugins{MultiPoint: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: pressure.Name}, {Name: resources.FitName, Weight: &weight}}}}
		if name == otherProfile {
			plugins.Filter.Disabled = []schedulerconfig.Plugin{{Name: taints.Name}}
		}
		file.Profiles = append(file.Profiles, schedulerconfig.KubeSchedulerProfile{SchedulerName: &name, Plugins: plugins})
	}
	cfg, err := config.Compile(file, BuiltIn())
	require.NoError(t, err)
	env, stores := environment()
	env.Random = &w.draws
	w.Scheduler, err = cycle.New(time.Time{}, cycle.Config{Table: env.Table, Env: env, KeepsCycles: !caches, Profiles: func(env framework.Env) ([]cycle.Profile, error) {
		return New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
	}}, nil)
	require.NoError(t, err)
	return w
}

// changingCluster applies the same random changes to both schedulers.
type changingCluster struct {
	plugintest.Dice
	twins  [2]*cacheTwin
	now    time.Time
	nodes  map[string]*v1.Node
	shapes []*v1.Pod
	placed []types.UID
	pods   int
	cached int
	// sharedNames: some nodes have the same host name. calm: no taint has the effect
	// PreferNoSchedule. close: shapes differ in one part.
	sharedNames, calm, close bool
}

func (w *changingCluster) each(change func(*nodetable.Table)) {
	for _, twin := range w.twins {
		change(twin.Table)
	}
}

func (w *changingCluster) setNode(n *v1.Node) {
	w.nodes[n.Name] = n
	w.each(func(t *nodetable.Table) { t.SetNode(nodetable.NewNode(n)) })
}

func (w *changingCluster) node(name string) *v1.Node {
	n := w.Node(name)
	if n.Labels[v1.LabelHostname] != "" && !w.sharedNames {
		n.Labels[v1.LabelHostname] = name
	}
	if w.Chance(5) {
		n.Labels[v1.LabelTopologyZone] = fmt.Sprint("small-", w.Random.IntN(20))
	}
	cpu, memory := plugintest.Pick(w.Dice, "2", "4", "4", "4", "8"), plugintest.Pick(w.Dice, "8Gi", "16Gi", "16Gi")
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory), v1.ResourcePods: resource.MustParse(plugintest.Pick(w.Dice, "110", "6"))}
	if w.Chance(20) {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("4")
	}
	n.Spec.Unschedulable = w.Chance(5)
	for i := range 3 {
		if !w.calm && w.Chance(10) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: fmt.Sprint("busy-", i), Effect: v1.TaintEffectPreferNoSchedule})
		}
	}
	if w.calm {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(taint v1.Taint) bool { return taint.Effect == v1.TaintEffectPreferNoSchedule })
	}
	if len(n.Spec.Taints) > 0 && w.Chance(20) {
		n.Spec.Taints = append(n.Spec.Taints, n.Spec.Taints[0])
	}
	for i := range 3 {
		if w.Chance(30) {
			n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{fmt.Sprintf("image-%d:latest", i)}, SizeBytes: int64(100+400*i) << 20})
		}
	}
	if w.Chance(10) {
		n.Status.Conditions = []v1.NodeCondition{{
			Type: plugintest.Pick(w.Dice, v1.NodeMemoryPressure, v1.NodeDiskPressure), Status: plugintest.Pick(w.Dice, v1.ConditionTrue, v1.ConditionFalse),
			LastTransitionTime: metav1.NewTime(w.now.Add(-time.Duration(w.Random.IntN(400)) * time.Second)),
		}}
	}
	return n
}

// changeNode changes a part of a node.
func (w *changingCluster) changeNode(name string) {
	n, other := w.nodes[name].DeepCopy(), w.node(name)
	switch w.Random.IntN(5) {
	case 0, 1:
		n.Labels = other.Labels
	case 2:
		n.Spec = other.Spec
	case 3:
		n.Status.Images = other.Status.Images
	default:
		n.Status.Allocatable = other.Status.Allocatable
	}
	w.setNode(n)
}

func (w *changingCluster) change() {
	name := plugintest.Pick(w.Dice, slices.Sorted(maps.Keys(w.nodes))...)
	switch w.Random.IntN(19) {
	case 0:
		w.setNode(w.node(name))
	case 1, 12:
		w.changeNode(name)
	case 2:
		w.setNode(w.node(fmt.Sprint("new-", w.Random.IntN(40))))
	case 3:
		if len(w.nodes) > 1 {
			delete(w.nodes, name)
			w.each(func(t *nodetable.Table) { t.RemoveNode(nodetable.Intern(name)) })
		}
	case 4, 14:
		labels := nodetable.NewLabels(w.Labels())
		namespace := plugintest.Pick(w.Dice, w.Namespaces()...)
		w.each(func(t *nodetable.Table) { t.SetNamespace(namespace, labels) })
	case 5, 15:
		namespace, selector := plugintest.Pick(w.Dice, w.Namespaces()...), w.Selector()
		w.each(func(t *nodetable.Table) {
			t.SetGroup(namespace, nodetable.Group{APIVersion: "v1", Kind: "Service", Name: "s"}, selector)
		})
	case 6:
		h := &nodetable.Headroom{Until: w.now.Add(time.Duration(w.Random.IntN(60)) * time.Second), Signals: []nodetable.SignalLevel{{
			Signal: "memory.available", Level: plugintest.Pick(w.Dice, nodetable.LevelOK, nodetable.LevelTight, nodetable.LevelSoft, nodetable.LevelHard),
		}}}
		w.each(func(t *nodetable.Table) { t.SetHeadroom(nodetable.Intern(name), h) })
	case 7:
		w.now = w.now.Add(time.Duration(w.Random.IntN(20)) * time.Second)
	case 8:
		w.fillShapes()
	case 9, 11, 13:
		w.shapes[w.Random.IntN(len(w.shapes))] = w.another()
	case 10: // the log of changed rows has no longer all changes
		w.changeNode(name)
		w.each(func(t *nodetable.Table) {
			for range 10_000 {
				t.Touch(t.Row(nodetable.Intern(name)))
			}
		})
	default:
		for range min(len(w.placed), w.Random.IntN(6)) {
			i := w.Random.IntN(len(w.placed))
			uid := w.placed[i]
			w.placed = slices.Delete(w.placed, i, i+1)
			w.each(func(t *nodetable.Table) { t.Displace(uid) })
		}
	}
}

// nominate nominates pods with the CPU of a small node to half of the nodes, or a pod to
// one of them. clear clears these nominations.
func (w *changingCluster) nominate(pod *v1.Pod) (clear func()) {
	var nominated []types.UID
	nominate := func(p *v1.Pod, node string) {
		nominated = append(nominated, p.UID)
		for _, twin := range w.twins {
			twin.Nominator.Nominate(nodetable.NewPod(p), node)
		}
	}
	nodes := slices.Sorted(maps.Keys(w.nodes))
	if w.Chance(30) {
		nominate(pod, plugintest.Pick(w.Dice, nodes...))
	} else {
		for _, node := range nodes {
			if w.Chance(50) {
				p := w.Pod("nominated-" + node)
				p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}}}}
				nominate(p, node)
			}
		}
	}
	return func() {
		for _, uid := range nominated {
			for _, twin := range w.twins {
				twin.Nominator.Clear(uid)
			}
		}
	}
}

// attempt schedules a pod of a shape by both schedulers.
func (w *changingCluster) attempt(t *testing.T) {
	object := plugintest.Pick(w.Dice, w.shapes...).DeepCopy()
	w.pods++
	object.Name = fmt.Sprint("pod-", w.pods)
	object.UID = types.UID(object.Name)
	if w.Chance(4) {
		defer w.nominate(object)()
	}
	var nodes [2]string
	for i, twin := range w.twins {
		pod := nodetable.NewPod(object)
		r := twin.SchedulingCycle(pod, w.now)
		if nodes[i] = r.Status.Message(); r.Status.OK() {
			nodes[i] = r.Binding.Node.Name.Value()
			if i == 0 && r.Cycle.Evaluated.Empty() {
				w.cached++
			}
		}
	}
	if nodes[0] != nodes[1] {
		t.Fatalf("pod %s is scheduled to %q with the cache, to %q without\n%+v", object.Name, nodes[0], nodes[1], object.Spec)
	}
	drawn, want := w.twins[0].draws.all, w.twins[1].draws.all
	if !slices.Equal(drawn, want) {
		t.Fatalf("pod %s on %s: the numbers and bounds are %v with the cache, %v without\n%+v", object.Name, nodes[0], drawn, want, object.Spec)
	}
	w.twins[0].draws.all, w.twins[1].draws.all = drawn[:0], want[:0]
	if row := w.twins[0].Table.Row(nodetable.Intern(nodes[0])); row != nodetable.NoRow {
		w.placed = append(w.placed, object.UID)
	}
}

func TestCachedScoresSelectTheNodesOfAllScores(t *testing.T) {
	cached, attempts := 0, 0
	for seed := range uint64(64) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := &changingCluster{
			Dice: plugintest.Dice{Random: random}, nodes: map[string]*v1.Node{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			twins: [2]*cacheTwin{newCacheTwin(t, seed, true), newCacheTwin(t, seed, false)}, sharedNames: seed%4 == 0, calm: seed%7 < 2, close: seed%8 < 6,
		}
		most := 600
		if seed%5 == 4 {
			most = 12 // domains are often left
		}
		for i := range 1 + random.IntN(most) {
			w.setNode(w.node(fmt.Sprint("node-", i)))
		}
		w.fillShapes()
		for range 300 {
			w.attempt(t)
			if w.Chance(20) {
				w.change()
			}
		}
		cached, attempts = cached+w.cached, attempts+w.pods
	}
	t.Logf("%d of %d attempts used cached scores", cached, attempts)
	if cached < attempts/3 {
		t.Errorf("%d of %d attempts used cached scores", cached, attempts)
	}
}
