package nodestatus

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Node is what the daemon publishes of its node.
type Node struct {
	Name                  string
	Taints                []v1.Taint
	Capacity, Allocatable v1.ResourceList
	Conditions            []v1.NodeCondition
}

// Manifest writes the v1.Node in YAML, with the fields of Node and no other:
// the same Node gives the same bytes.
func (n Node) Manifest() ([]byte, error) {
	type (
		metadata struct {
			Name string `json:"name"`
		}
		spec struct {
			Taints []v1.Taint `json:"taints,omitempty"`
		}
		status struct {
			Capacity    v1.ResourceList    `json:"capacity,omitempty"`
			Allocatable v1.ResourceList    `json:"allocatable,omitempty"`
			Conditions  []v1.NodeCondition `json:"conditions,omitempty"`
		}
	)
	return yaml.Marshal(struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metadata `json:"metadata"`
		Spec            spec     `json:"spec,omitzero"`
		Status          status   `json:"status"`
	}{
		metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		metadata{n.Name},
		spec{n.Taints},
		status{n.Capacity, n.Allocatable, n.Conditions},
	})
}
