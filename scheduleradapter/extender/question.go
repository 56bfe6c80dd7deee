package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/internal/jsonsize"
)

// The bounds of a request: what is decoded of it may take a thousand times the memory of its bytes.
const (
	maxQuestion = 64 << 20 // bytes: 5,000 whole nodes have 50 MB
	maxObjects  = 2 << 20  // objects and arrays of all
	maxNodes    = 100_000
	maxPod      = 2 << 20 // bytes
	maxParts    = 20_000  // objects and arrays of the pod
)

// arguments is what is read of ExtenderArgs.
type arguments struct {
	Pod       *pod
	Nodes     *nodeList
	NodeNames *nodes[[]string]
}

// nodeList is a NodeList whose nodes are passed on as they came: kube-scheduler scores those that an extender returns.
type nodeList struct {
	Items nodes[[]node] `json:"items"`
}

// node is a node whose name alone is decoded.
type node struct {
	name string
	text json.RawMessage
}

func (n *node) UnmarshalJSON(text []byte) error {
	var of struct{ Metadata struct{ Name string } }
	err := json.Unmarshal(text, &of)
	n.name, n.text = of.Metadata.Name, slices.Clone(text)
	return err
}

func (n node) MarshalJSON() ([]byte, error) { return n.text, nil }

// filterResult is an ExtenderFilterResult with such nodes.
type filterResult struct {
	Nodes *nodeList
	wire.ExtenderFilterResult
}

// preemption is what is read of ExtenderPreemptionArgs.
type preemption struct {
	Pod                   *pod
	NodeNameToVictims     nodes[map[string]*victims]
	NodeNameToMetaVictims nodes[map[string]*wire.MetaVictims]
}

type victims struct {
	Pods []*struct {
		Metadata struct{ UID string }
	}
	NumPDBViolations int64
}

// pod is a pod within its bounds.
type pod struct{ v1.Pod }

func (p *pod) UnmarshalJSON(text []byte) error {
	if len(text) > maxPod {
		return tooLarge(fmt.Sprintf("the pod has %d bytes, more than %d", len(text), maxPod))
	}
	if objects, _ := jsonsize.Count(text); objects > maxParts {
		return tooLarge(fmt.Sprintf("the pod has %d objects and arrays, more than %d", objects, maxParts))
	}
	return json.Unmarshal(text, &p.Pod)
}

// nodes are at most maxNodes, as an array or an object.
type nodes[T any] struct{ all T }

func (n *nodes[T]) UnmarshalJSON(text []byte) error {
	if _, elements := jsonsize.Count(text); elements > maxNodes {
		return tooLarge(fmt.Sprintf("the request has %d nodes, more than %d", elements, maxNodes))
	}
	return json.Unmarshal(text, &n.all)
}

func (n nodes[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.all) }

// tooLarge is the fault of a request that is beyond a bound.
type tooLarge string

func (t tooLarge) Error() string { return string(t) }

// read decodes a request.
func read(from io.Reader, into any) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if objects, _ := jsonsize.Count(text); objects > maxObjects {
		return tooLarge(fmt.Sprintf("it has %d objects and arrays, more than %d", objects, maxObjects))
	}
	return json.Unmarshal(text, into)
}

// isTooLarge says whether err means that the request exceeds a bound, which is answered by 413.
func isTooLarge(err error) bool {
	_, bytes := errors.AsType[*http.MaxBytesError](err)
	_, parts := errors.AsType[tooLarge](err)
	return bytes || parts
}
