package config

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// policy is a Policy of kube-scheduler up to 1.22. A missing list stands for the
// defaults, an empty list for none.
type policy struct {
	metav1.TypeMeta                `json:",inline"`
	Predicates                     []predicate      `json:"predicates"`
	Priorities                     []priority       `json:"priorities"`
	Extenders                      []policyExtender `json:"extenders"`
	HardPodAffinitySymmetricWeight *int32           `json:"hardPodAffinitySymmetricWeight"`
	AlwaysCheckAllPredicates       bool             `json:"alwaysCheckAllPredicates"`
}

type predicate struct {
	Name     string             `json:"name"`
	Argument *predicateArgument `json:"argument"`
}

// predicateArgument has exactly one of its fields.
type predicateArgument struct {
	ServiceAffinity *struct {
		Labels []string `json:"labels"`
	} `json:"serviceAffinity"`
	LabelsPresence *struct {
		Labels   []string `json:"labels"`
		Presence bool     `json:"presence"`
	} `json:"labelsPresence"`
}

type priority struct {
	Name     string            `json:"name"`
	Weight   int64             `json:"weight"`
	Argument *priorityArgument `json:"argument"`
}

// priorityArgument has exactly one of its fields.
type priorityArgument struct {
	ServiceAntiAffinity *struct {
		Label string `json:"label"`
	} `json:"serviceAntiAffinity"`
	LabelPreference *struct {
		Label    string `json:"label"`
		Presence bool   `json:"presence"`
	} `json:"labelPreference"`
	RequestedToCapacityRatioArguments *struct {
		Shape     []configv1.UtilizationShapePoint `json:"shape"`
		Resources []configv1.ResourceSpec          `json:"resources"`
	} `json:"requestedToCapacityRatioArguments"`
}

// translation is the state of translate.
type translation struct {
	compiler
	maxVolumes string
	filters    []string // plugins in order
	scores     []configv1.Plugin
	scoredBy   map[string]*field.Path // by plugin; nil: default priority
	fits       []fit
	shared     map[string]shared // by plugin
	labels     NodeLabelArgs
	services   ServiceAffinityArgs
	volumes    NodeVolumeLimitsArgs
	pressure   NodePressureArgs
	spread     configv1.PodTopologySpreadArgs
	interPod   configv1.InterPodAffinityArgs
}

// shared is the weight and the number of priorities that share a plugin.
type shared struct {
	path          *field.Path // of the first priority
	weight, times int64
}

// fit is a scoring strategy with its plugin.
type fit struct {
	plugin   string
	strategy configv1.ScoringStrategy
}

// translate makes a profile of a Policy. What a Policy cannot configure is as in
// the default profile. Invalid parts are left out.
func translate(p *policy, maxVolumes string, plugins []Plugin) (File, []error) {
	t := &translation{
		compiler: compiler{plugins: plugins}, maxVolumes: maxVolumes, scoredBy: map[string]*field.Path{}, shared: map[string]shared{},
		volumes: NodeVolumeLimitsArgs{CSI: new(false)},
		pressure: NodePressureArgs{
			Conditions: []v1.NodeConditionType{}, Headroom: new(false), EvictionHalfLife: &metav1.Duration{}, Ramp: &metav1.Duration{},
		},
		spread: configv1.PodTopologySpreadArgs{DefaultingType: configv1.ListDefaulting},
	}
	t.filter(field.NewPath("predicates"), p.Predicates)
	t.score(field.NewPath("priorities"), p.Priorities)
	t.hardWeight(field.NewPath("hardPodAffinitySymmetricWeight"), p.HardPodAffinitySymmetricWeight)
	file := File{everyReason: p.AlwaysCheckAllPredicates}
	file.Profiles = []configv1.KubeSchedulerProfile{{SchedulerName: new(v1.DefaultSchedulerName), Plugins: t.points(), PluginConfig: t.arguments()}}
	for i := range p.Extenders {
		file.Extenders = append(file.Extenders, p.Extenders[i].extender())
		if p.Extenders[i].APIVersion != "" {
			t.warn(field.NewPath("extenders").Index(i).Child("apiVersion"), "extenders have one version: ignored")
		}
	}
	file.warnings = t.warnings
	return file, t.faults
}

// hardWeight replaces 0 with the default, as kube-scheduler did.
func (t *translation) hardWeight(path *field.Path, weight *int32) {
	if weight == nil {
		return
	}
	if *weight == 0 {
		t.warn(path, "0 stands for the default, 1")
		return
	}
	if t.fault(inRange(path, *weight, 0, maxPercent)) {
		return
	}
	t.interPod.HardPodAffinityWeight = weight
}

// fault adds faults and reports whether there are any.
func (t *translation) fault(faults field.ErrorList) bool {
	for _, fault := range faults {
		t.faults = append(t.faults, fault)
	}
	return len(faults) > 0
}

func (t *translation) enable(name string) {
	if !slices.Contains(t.filters, name) {
		t.filters = append(t.filters, name)
	}
}

// weigh adds a score plugin. If several priorities stand for it, the weight of the
// first applies.
func (t *translation) weigh(path *field.Path, name string, weight int64) {
	if weight > math.MaxInt32 {
		t.invalid(path.Child("weight"), weight, "is too large together with those that share it")
		return
	}
	i := slices.IndexFunc(t.scores, func(p configv1.Plugin) bool { return p.Name == name })
	if i < 0 {
		t.scores, t.scoredBy[name] = append(t.scores, configv1.Plugin{Name: name, Weight: new(int32(weight))}), path
		return
	}
	if first := t.scoredBy[name]; first != nil && path != nil && weight != int64(*t.scores[i].Weight) {
		t.warn(path.Child("weight"), "%s scores with the weight of %s, %d", name, first, *t.scores[i].Weight)
	}
}

// points enables the plugins of predicates at PreFilter, Filter, Reserve and
// PreBind, and those of priorities at PreScore and Score.
func (t *translation) points() *configv1.Plugins {
	var sets [framework.Points]configv1.PluginSet
	enable := func(p configv1.Plugin, points ...framework.Point) {
		known, _ := t.plugin(p.Name)
		for _, point := range points {
			if known.implements(point) {
				sets[point].Enabled = append(sets[point].Enabled, p)
			}
		}
	}
	for _, name := range []string{"SchedulingGates", "PrioritySort", dynamicResources, "DefaultPreemption", "DefaultBinder"} {
		enable(configv1.Plugin{Name: name}, framework.PreEnqueue, framework.QueueSort, framework.PostFilter, framework.Bind, framework.PostBind)
	}
	for _, name := range append(t.filters, dynamicResources, "NodeDeclaredFeatures") {
		enable(configv1.Plugin{Name: name}, framework.PreFilter, framework.Filter, framework.Reserve, framework.PreBind)
	}
	for _, plugin := range t.scores {
		enable(configv1.Plugin{Name: plugin.Name}, framework.PreScore)
		enable(plugin, framework.Score)
	}
	return &configv1.Plugins{
		MultiPoint: configv1.PluginSet{Disabled: []configv1.Plugin{{Name: "*"}}},
		PreEnqueue: sets[framework.PreEnqueue], QueueSort: sets[framework.QueueSort], PreFilter: sets[framework.PreFilter], Filter: sets[framework.Filter],
		PostFilter: sets[framework.PostFilter], PreScore: sets[framework.PreScore], Score: sets[framework.Score], Reserve: sets[framework.Reserve],
		PreBind: sets[framework.PreBind], Bind: sets[framework.Bind], PostBind: sets[framework.PostBind],
	}
}

// arguments are those of the plugins that the Policy configures.
func (t *translation) arguments() (arguments []configv1.PluginConfig) {
	add := func(name string, args any) {
		raw, err := json.Marshal(args)
		if err != nil {
			t.faults = append(t.faults, fmt.Errorf("arguments of %s: %w", name, err))
		}
		arguments = append(arguments, configv1.PluginConfig{Name: name, Args: runtime.RawExtension{Raw: raw}})
	}
	for i := range t.fits {
		add(t.fits[i].plugin, &configv1.NodeResourcesFitArgs{ScoringStrategy: &t.fits[i].strategy})
	}
	for _, plugin := range []struct {
		name string
		args any
	}{
		{nodeLabel, &t.labels}, {serviceAffinity, &t.services}, {nodeVolumeLimits, &t.volumes}, {nodePressure, &t.pressure},
		{podTopologySpread, &t.spread}, {interPodAffinity, &t.interPod},
	} {
		if _, scores := t.scoredBy[plugin.name]; scores || slices.Contains(t.filters, plugin.name) {
			add(plugin.name, plugin.args)
		}
	}
	return arguments
}

// count adds a limit of in-tree volumes, which the environment may override.
func (t *translation) count(limit InTreeLimit) {
	if t.maxVolumes != "" {
		n, err := strconv.ParseInt(t.maxVolumes, 10, 32)
		if err == nil && n > 0 {
			limit = InTreeLimit{Plugin: limit.Plugin, Count: int32(n)}
		} else if len(t.volumes.InTree) == 0 {
			t.warnings = append(t.warnings, fmt.Sprintf("%s: %q is not a number above 0: ignored", MaxVolumesVariable, t.maxVolumes))
		}
	}
	t.volumes.InTree = append(t.volumes.InTree, limit)
}
