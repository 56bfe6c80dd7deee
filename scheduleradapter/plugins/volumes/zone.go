package volumes

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

const ZoneName = "VolumeZone"

// Zone is VolumeZone: it rejects nodes outside the zones and regions of the labels
// of bound volumes.
type Zone struct {
	*Storage
	zoned  *nodetable.NodeSelector // nodes with a topology label
	rules  []*nodetable.NodeSelector
	others nodetable.Bits // buffer
}

// topologyLabels are the zone and region labels, with the stable labels that
// replace the beta ones on nodes.
var topologyLabels = [...]struct{ key, now string }{
	{v1.LabelFailureDomainBetaZone, v1.LabelTopologyZone},
	{v1.LabelFailureDomainBetaRegion, v1.LabelTopologyRegion},
	{v1.LabelTopologyZone, v1.LabelTopologyZone},
	{v1.LabelTopologyRegion, v1.LabelTopologyRegion},
}

func (s *Storage) NewZone(any, framework.Env) (framework.Plugin, error) {
	var terms []v1.NodeSelectorTerm
	for _, label := range topologyLabels {
		terms = append(terms, whereLabel(label.key, v1.NodeSelectorOpExists))
	}
	return &Zone{Storage: s, zoned: nodetable.NewNodeSelector(nil, &v1.NodeSelector{NodeSelectorTerms: terms})}, nil
}

func whereLabel(key string, op v1.NodeSelectorOperator, values ...string) v1.NodeSelectorTerm {
	return v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

// zones are the node selectors of a volume's labels: a value has zones joined by
// two underscores. A label with an empty zone is ignored.
func zones(labels map[string]string) []*nodetable.NodeSelector {
	var rules []*nodetable.NodeSelector
	for _, label := range topologyLabels {
		value, found := labels[label.key]
		values := strings.Split(value, "__")
		if !found || slices.Contains(values, "") {
			continue
		}
		terms := []v1.NodeSelectorTerm{whereLabel(label.key, v1.NodeSelectorOpIn, values...)}
		if label.now != label.key {
			without := whereLabel(label.now, v1.NodeSelectorOpIn, values...)
			without.MatchExpressions = append(without.MatchExpressions, v1.NodeSelectorRequirement{Key: label.key, Operator: v1.NodeSelectorOpDoesNotExist})
			terms = append(terms, without)
		}
		rules = append(rules, nodetable.NewNodeSelector(nil, &v1.NodeSelector{NodeSelectorTerms: terms}))
	}
	return rules
}

func (*Zone) Name() string { return ZoneName }

// PreFilter skips pods without volumes with topology labels.
func (z *Zone) PreFilter(c *framework.Cycle) framework.Status {
	z.rules = z.rules[:0]
	for _, used := range c.Pod.Claims {
		if used.Ephemeral {
			continue
		}
		v, err := z.boundVolume(used)
		if err != nil {
			return unresolvable(err)
		}
		if v != nil {
			z.rules = append(z.rules, v.zones...)
		}
	}
	if len(z.rules) == 0 {
		return framework.Status{Code: framework.Skip}
	}
	return framework.Status{}
}

// boundVolume is the volume of a claim; nil: it is bound with the pod's node.
func (z *Zone) boundVolume(used nodetable.Claim) (*volume, error) {
	if used.Name == "" {
		return nil, errors.New("PersistentVolumeClaim had no name")
	}
	object := z.claim(used.Key)
	if object == nil {
		return nil, notFound("persistentvolumeclaim", used.Name)
	}
	if name := object.Spec.VolumeName; name != "" {
		if v := z.volumes[name]; v != nil {
			return v, nil
		}
		return nil, notFound("persistentvolume", name)
	}
	name := classOfClaim(object)
	class := z.classes[name]
	switch {
	case name == "":
		return nil, errors.New("PersistentVolumeClaim had no pv name and storageClass name")
	case class == nil:
		return nil, notFound("storageclass.storage.k8s.io", name)
	case class.object.VolumeBindingMode == nil:
		return nil, fmt.Errorf("VolumeBindingMode not set for StorageClass %q", name)
	case class.delays():
		return nil, nil
	}
	return nil, errors.New("PersistentVolume had no name")
}

// Filter rejects nodes of other zones. A node without topology labels has all
// volumes.
func (z *Zone) Filter(c *framework.Cycle) framework.Status {
	for _, rule := range z.rules {
		z.others = z.others.Copied(c.Table.Select(z.zoned))
		z.others.AndNot(c.Table.Select(rule))
		c.RejectAll(z.others, 1, true)
	}
	return framework.Status{}
}

func (*Zone) Reasons(*nodetable.Pod, uint32) []string {
	return []string{"node(s) had no available volume zone"}
}

// Events are: a storage class with delayed binding was added, a node was added or
// relabeled, a claim or volume changed.
func (*Zone) Events() []framework.EventHint {
	return []framework.EventHint{
		{Event: framework.Event{Resource: framework.StorageClass, Action: framework.Add}, Hint: classCame},
		{Event: framework.Event{Resource: framework.NodeResource, Action: framework.Add | framework.UpdateNodeLabel}},
		{Event: framework.Event{Resource: framework.PersistentVolumeClaim, Action: framework.Add | framework.Update}, Hint: claimChanged(false)},
		{Event: framework.Event{Resource: framework.PersistentVolume, Action: framework.Add | framework.Update}, Hint: changed(volumeMoved)},
	}
}

func classCame(o *framework.Occurrence, _ *nodetable.Pod) (framework.Hint, error) {
	object, err := now[*storagev1.StorageClass](o)
	if err != nil {
		return framework.Queue, err
	}
	return queueIf((&class{object: object}).delays())
}

func volumeMoved(was, is *v1.PersistentVolume) bool {
	return slices.ContainsFunc(topologyLabels[:], func(label struct{ key, now string }) bool { return was.Labels[label.key] != is.Labels[label.key] })
}
