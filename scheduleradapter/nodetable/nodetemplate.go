package nodetable

import (
	"slices"
	"weak"

	v1 "k8s.io/api/core/v1"
)

// NewNode is the digest of a node with an object that nodes of a machine type share. It
// has allocatable amounts, declared features and the annotation of PreferAvoidPods.
func (t *Templates) NewNode(node *v1.Node) *Node {
	n := NewNode(node)
	common := &v1.Node{Status: v1.NodeStatus{Allocatable: node.Status.Allocatable, DeclaredFeatures: node.Status.DeclaredFeatures}}
	if avoids := node.Annotations[v1.PreferAvoidPodsAnnotationKey]; avoids != "" {
		common.Annotations = map[string]string{v1.PreferAvoidPodsAnnotationKey: avoids}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n.template = t.nodeTemplate(common, n.Extended)
	n.Object, n.Extended = n.template.object, n.template.extended
	return n
}

// nodeTemplate is what nodes of a machine type have in common.
type nodeTemplate struct {
	object   *v1.Node
	extended []Amount
}

func (t *Templates) nodeTemplate(common *v1.Node, extended []Amount) *nodeTemplate {
	t.key = slices.Grow(t.key[:0], common.Size())[:common.Size()]
	_, err := common.MarshalToSizedBuffer(t.key)
	if known := t.nodes[string(t.key)].Value(); known != nil && err == nil {
		return known
	}
	template := &nodeTemplate{common.DeepCopy(), extended}
	t.removeDead()
	if err == nil {
		t.nodes[string(t.key)] = weak.Make(template)
	}
	return template
}

// OwnObject is the object of the node. For a digest of Templates it is made, with the name
// and labels, and without taints, conditions and images.
func (n *Node) OwnObject() *v1.Node {
	if n.template == nil {
		return n.Object
	}
	object := *n.Object
	object.Name, object.UID, object.Labels = n.Name.Value(), n.UID, n.Labels.texts()
	object.Spec.Unschedulable = n.Unschedulable
	return &object
}

// texts are the labels of an object.
func (l Labels) texts() map[string]string {
	texts := make(map[string]string, len(l))
	for i := range l {
		texts[l[i].Key.Value()] = l[i].Value.Value()
	}
	return texts
}
