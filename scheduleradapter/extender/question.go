package extender

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"
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
	Nodes     *struct{ Items nodes[[]named] }
	NodeNames *nodes[[]string]
}

// preemption is what is read of ExtenderPreemptionArgs.
type preemption struct {
	Pod                   *pod
	NodeNameToVictims     nodes[map[string]*victims]
	NodeNameToMetaVictims nodes[map[string]*wire.MetaVictims]
}

type named struct {
	Metadata struct{ Name string }
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
	if objects, _ := count(text); objects > maxParts {
		return tooLarge(fmt.Sprintf("the pod has %d objects and arrays, more than %d", objects, maxParts))
	}
	return json.Unmarshal(text, &p.Pod)
}

// nodes are at most maxNodes, as an array or an object.
type nodes[T any] struct{ all T }

func (n *nodes[T]) UnmarshalJSON(text []byte) error {
	if _, elements := count(text); elements > maxNodes {
		return tooLarge(fmt.Sprintf("the request has %d nodes, more than %d", elements, maxNodes))
	}
	return json.Unmarshal(text, &n.all)
}

// tooLarge is the fault of a request that is beyond a bound.
type tooLarge string

func (t tooLarge) Error() string { return string(t) }

// read decodes a request.
func read(from io.Reader, into any) error {
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if objects, _ := count(text); objects > maxObjects {
		return tooLarge(fmt.Sprintf("it has %d objects and arrays, more than %d", objects, maxObjects))
	}
	return json.Unmarshal(text, into)
}

// isTooLarge says whether a request is refused for its size.
func isTooLarge(err error) bool {
	_, bytes := errors.AsType[*http.MaxBytesError](err)
	_, parts := errors.AsType[tooLarge](err)
	return bytes || parts
}

// count counts the objects and arrays of a JSON text, and the elements of the outermost one, of which an empty one counts as one.
func count(text []byte) (objects, elements int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			objects, depth = objects+1, depth+1
		case '}', ']':
			depth--
		case ',':
			if depth == 1 {
				elements++
			}
		}
	}
	return objects, elements + 1
}
