package extender

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	v1 "k8s.io/api/core/v1"
	wire "k8s.io/kube-scheduler/extender/v1"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// Evaluate evaluates nodes for a pod. Any goroutine may call it.
type Evaluate func(ctx context.Context, pod *v1.Pod, nodes []string) (Result, error)

// NewHandler serves an extender at /filter, /prioritize and /preempt. Unknown nodes
// pass with the highest score.
func NewHandler(evaluate Evaluate) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /filter", answer(evaluate.filter))
	mux.Handle("POST /prioritize", answer(evaluate.prioritize))
	mux.Handle("POST /preempt", answer(evaluate.preempt))
	return mux
}

// answer decodes a request and encodes the response.
func answer[Q, A any](handle func(context.Context, *Q) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var question Q
		if r.ContentLength > maxQuestion {
			http.Error(w, fmt.Sprintf("the request has %d bytes, more than %d", r.ContentLength, maxQuestion), http.StatusRequestEntityTooLarge)
			return
		}
		if err := read(http.MaxBytesReader(w, r.Body, maxQuestion), &question); err != nil {
			status := http.StatusBadRequest
			if isTooLarge(err) {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, fmt.Sprintf("read the request: %v", err), status)
			return
		}
		result, err := handle(r.Context(), &question)
		switch {
		case errors.Is(err, errNoPod):
			http.Error(w, err.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(result) // the client may have disconnected
		}
	}
}

var errNoPod = errors.New("the request has no pod")

func (e Evaluate) call(ctx context.Context, pod *pod, names []string) (Result, error) {
	if pod == nil {
		return Result{}, errNoPod
	}
	return e(ctx, &pod.Pod, names)
}

func (a *arguments) names() (names []string) {
	if a.NodeNames != nil {
		return a.NodeNames.all
	}
	if a.Nodes != nil {
		for _, n := range a.Nodes.Items.all {
			names = append(names, n.name)
		}
	}
	return names
}

func (e Evaluate) filter(ctx context.Context, args *arguments) (*filterResult, error) {
	names := args.names()
	evaluated, err := e.call(ctx, args.Pod, names)
	if err != nil {
		return nil, err
	}
	result := &filterResult{ExtenderFilterResult: wire.ExtenderFilterResult{FailedNodes: wire.FailedNodesMap{}, FailedAndUnresolvableNodes: wire.FailedNodesMap{}}}
	for name, why := range evaluated.Rejected {
		if why.Unresolvable {
			result.FailedAndUnresolvableNodes[name] = why.Reason
		} else {
			result.FailedNodes[name] = why.Reason
		}
	}
	rejected := func(name string) bool { _, is := evaluated.Rejected[name]; return is }
	if args.NodeNames != nil {
		passed := slices.DeleteFunc(names, rejected)
		result.NodeNames = &passed
	} else if args.Nodes != nil {
		passed := slices.DeleteFunc(args.Nodes.Items.all, func(n node) bool { return rejected(n.name) })
		result.Nodes = &nodeList{nodes[[]node]{passed}}
	}
	return result, nil
}

func (e Evaluate) prioritize(ctx context.Context, args *arguments) (wire.HostPriorityList, error) {
	names := args.names()
	evaluated, err := e.call(ctx, args.Pod, names)
	if err != nil {
		return nil, err
	}
	list := make(wire.HostPriorityList, len(names))
	for i, name := range names {
		score, known := evaluated.Scores[name]
		if !known {
			score = framework.MaxScore
		}
		list[i] = wire.HostPriority{Host: name, Score: score * wire.MaxExtenderPriority / framework.MaxScore}
	}
	return list, nil
}

// preempt removes nodes on which preemption does not help.
func (e Evaluate) preempt(ctx context.Context, args *preemption) (*wire.ExtenderPreemptionResult, error) {
	victims := args.NodeNameToMetaVictims.all
	if victims == nil {
		victims = make(map[string]*wire.MetaVictims, len(args.NodeNameToVictims.all))
		for name, full := range args.NodeNameToVictims.all {
			victims[name] = withoutObjects(full)
		}
	}
	names := make([]string, 0, len(victims))
	for name := range victims {
		names = append(names, name)
	}
	evaluated, err := e.call(ctx, args.Pod, names)
	if err != nil {
		return nil, err
	}
	for name, why := range evaluated.Rejected {
		if why.Unresolvable {
			delete(victims, name)
		}
	}
	return &wire.ExtenderPreemptionResult{NodeNameToMetaVictims: victims}, nil
}

func withoutObjects(full *victims) *wire.MetaVictims {
	if full == nil {
		return &wire.MetaVictims{}
	}
	meta := &wire.MetaVictims{NumPDBViolations: full.NumPDBViolations}
	for _, pod := range full.Pods {
		if pod != nil {
			meta.Pods = append(meta.Pods, &wire.MetaPod{UID: pod.Metadata.UID})
		}
	}
	return meta
}
