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
)

// draws are the random numbers of a scheduler with their bounds.
type draws struct {
	random *rand.Rand
	all    [][2]int
}

func (d *draws) IntN(n int) int {
	drawn := d.random.IntN(n)
	d.all = append(d.all, [2]int{n, drawn})
	return drawn
}

// cacheTwin is a scheduler with the default profile and NodePressure, with the cache of
// scores or without.
type cacheTwin struct {
	*cycle.Scheduler
	draws draws
}

func newCacheTwin(t *testing.T, seed uint64, caches bool) *cacheTwin {
	t.Helper()
	w := &cacheTwin{draws: draws{random: rand.New(rand.NewPCG(seed, 1))}}
	file := &config.File{}
	file.PercentageOfNodesToScore = new([...]int32{100, 0, 20}[seed%3])
	file.Profiles = []schedulerconfig.KubeSchedulerProfile{{Plugins: &schedulerconfig.Plugins{MultiPoint: schedulerconfig.PluginSet{Enabled: []schedulerconfig.Plugin{{Name: pressure.Name}}}}}}
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
}

func (w *changingCluster) each(change func(*nodetable.Table)) {
	for _, twin := range w.twins {
		change(twin.Table)
	}
}

func (w *changingCluster) setNode(name string) {
	n := w.Node(name)
	cpu, memory := plugintest.Pick(w.Dice, "2", "4", "4", "4", "8"), plugintest.Pick(w.Dice, "8Gi", "16Gi", "16Gi")
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory), v1.ResourcePods: resource.MustParse(plugintest.Pick(w.Dice, "110", "6"))}
	if w.Chance(20) {
		n.Status.Allocatable["example.com/gpu"] = resource.MustParse("4")
	}
	n.Spec.Unschedulable = w.Chance(5)
	for i := range 3 {
		if w.Chance(10) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: fmt.Sprint("busy-", i), Effect: v1.TaintEffectPreferNoSchedule})
		}
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
	w.nodes[name] = n
	w.each(func(t *nodetable.Table) { t.SetNode(nodetable.NewNode(n)) })
}

// shape is a pod of which the cluster creates many.
func (w *changingCluster) shape() *v1.Pod {
	p := w.Pod("shape")
	p.DeletionTimestamp = nil
	p.Spec.SchedulerName = v1.DefaultSchedulerName
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse(plugintest.Pick(w.Dice, "10m", "20m", "300m")), v1.ResourceMemory: resource.MustParse(plugintest.Pick(w.Dice, "10Mi", "100Mi"))}
	if w.Chance(10) {
		requests["example.com/gpu"] = resource.MustParse("1")
	}
	if w.Chance(10) {
		requests = nil
	}
	p.Spec.Containers = []v1.Container{{Image: fmt.Sprint("image-", w.Random.IntN(5)), Resources: v1.ResourceRequirements{Requests: requests}}}
	if w.Chance(5) {
		p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
	}
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{}, PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}
	if w.Chance(25) {
		p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{{Weight: 30, Preference: v1.NodeSelectorTerm{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorOpIn, Values: []string{"1", plugintest.Pick(w.Dice, "2", "3")}}},
		}}}
	}
	term := func() v1.PodAffinityTerm {
		return v1.PodAffinityTerm{TopologyKey: plugintest.Pick(w.Dice, w.Topologies()...), LabelSelector: w.Selector(), NamespaceSelector: plugintest.Pick(w.Dice, nil, nil, w.Selector())}
	}
	if w.Chance(10) {
		p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{term()}
	}
	if w.Chance(15) {
		p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{term()}
	}
	if w.Chance(15) {
		p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.WeightedPodAffinityTerm{{Weight: 7, PodAffinityTerm: term()}}
	}
	if w.Chance(15) {
		p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term()}, {Weight: 5, PodAffinityTerm: term()}}
	}
	for w.Chance(30) {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{
			MaxSkew: int32(1 + w.Random.IntN(4)), TopologyKey: plugintest.Pick(w.Dice, w.Topologies()...), LabelSelector: w.Selector(),
			WhenUnsatisfiable: plugintest.Pick(w.Dice, v1.DoNotSchedule, v1.ScheduleAnyway, v1.ScheduleAnyway),
		})
	}
	return p
}

// relabelled is a shape with other labels and images, in another namespace.
func (w *changingCluster) relabelled() *v1.Pod {
	p := plugintest.Pick(w.Dice, w.shapes...).DeepCopy()
	p.Labels, p.Namespace = w.Labels(), plugintest.Pick(w.Dice, w.Namespaces()...)
	p.Spec.InitContainers = []v1.Container{{Image: fmt.Sprint("image-", w.Random.IntN(5))}}
	return p
}

func (w *changingCluster) change() {
	name := plugintest.Pick(w.Dice, slices.Sorted(maps.Keys(w.nodes))...)
	switch w.Random.IntN(13) {
	case 0, 1:
		w.setNode(name)
	case 2:
		w.setNode(fmt.Sprint("new-", w.Random.IntN(40)))
	case 3:
		if len(w.nodes) > 1 {
			delete(w.nodes, name)
			w.each(func(t *nodetable.Table) { t.RemoveNode(nodetable.Intern(name)) })
		}
	case 4:
		labels := nodetable.NewLabels(w.Labels())
		namespace := plugintest.Pick(w.Dice, w.Namespaces()...)
		w.each(func(t *nodetable.Table) { t.SetNamespace(namespace, labels) })
	case 5:
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
		w.shapes[w.Random.IntN(len(w.shapes))] = w.shape()
	case 9:
		w.shapes[w.Random.IntN(len(w.shapes))] = w.relabelled()
	default:
		for range min(len(w.placed), w.Random.IntN(6)) {
			i := w.Random.IntN(len(w.placed))
			uid := w.placed[i]
			w.placed = slices.Delete(w.placed, i, i+1)
			w.each(func(t *nodetable.Table) { t.Displace(uid) })
		}
	}
}

// attempt schedules a pod of a shape by both schedulers.
func (w *changingCluster) attempt(t *testing.T) {
	object := plugintest.Pick(w.Dice, w.shapes...).DeepCopy()
	w.pods++
	object.Name = fmt.Sprint("pod-", w.pods)
	object.UID = types.UID(object.Name)
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
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 2))
		w := &changingCluster{
			Dice: plugintest.Dice{Random: random}, nodes: map[string]*v1.Node{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			twins: [2]*cacheTwin{newCacheTwin(t, seed, true), newCacheTwin(t, seed, false)},
		}
		for i := range 1 + random.IntN(600) {
			w.setNode(fmt.Sprint("node-", i))
		}
		for range 6 {
			w.shapes = append(w.shapes, w.shape())
		}
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
