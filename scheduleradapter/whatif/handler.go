package whatif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/admission"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// MaxBody bounds the documents of a question, bytes.
const MaxBody = 1 << 20

// Handler serves POST /v1/whatif?count=N with a pod or a workload as body. One question is
// answered at a time. ready reports whether the scheduler knows the cluster.
func Handler(l *cycle.Loop, ready func() bool, log *slog.Logger) http.HandlerFunc {
	return serve.OneAtATime()(func(w http.ResponseWriter, r *http.Request) {
		if !ready() {
			http.Error(w, "the cluster is not known yet", http.StatusServiceUnavailable)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
		if err != nil {
			status := http.StatusBadRequest
			if _, large := errors.AsType[*http.MaxBytesError](err); large {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, fmt.Sprintf("read the body, of at most %d bytes: %v", MaxBody, err), status)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), serve.Timeout)
		defer cancel()
		x, invalid, err := answer(ctx, l, body, r.URL.Query().Get("count"))
		switch {
		case invalid != nil:
			http.Error(w, invalid.Error(), http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			serve.Send(w, x, log)
		}
	})
}

// answer answers a question. invalid is a fault of the question.
func answer(ctx context.Context, l *cycle.Loop, body []byte, count string) (x cycle.WhatIf, invalid, err error) {
	q, invalid := read(body)
	if invalid != nil {
		return x, invalid, nil
	}
	n := 0
	if count != "" {
		if n, err = strconv.Atoi(count); err != nil {
			return x, fmt.Errorf("count %q: expected a number", count), nil
		}
		if n < 1 || n > cycle.MaxWhatIf {
			return x, fmt.Errorf("count %d: expected 1 to %d", n, cycle.MaxWhatIf), nil
		}
		if len(q.asked) > 1 || q.asked[0].about.Kind == "DaemonSet" {
			return x, fmt.Errorf("count %d: expected one pod or workload that is no DaemonSet, found %d", n, len(q.asked)), nil
		}
	}
	var nodes []*v1.Node
	if slices.ContainsFunc(q.asked, func(a *asked) bool { return a.about.Kind == "DaemonSet" }) {
		if nodes, err = l.Nodes(ctx); err != nil {
			return x, nil, err
		}
	}
	all := 0
	for _, a := range q.asked {
		a.expand(n, nodes)
		all += a.count()
	}
	if all < 1 || all > cycle.MaxWhatIf {
		return x, fmt.Errorf("%d pods: expected 1 to %d", all, cycle.MaxWhatIf), nil
	}
	if invalid, err = q.complete(ctx, l.PriorityClass); invalid != nil || err != nil {
		return x, invalid, err
	}
	var asks cycle.Question
	leftOut := [][]string{}
	var unused []string
	for kind, n := range admission.InOrder(q.unused) {
		unused = append(unused, fmt.Sprintf("%d %s", n, kind))
	}
	for _, a := range q.asked {
		switch {
		case len(a.pods) == 0:
			unused = append(unused, a.about.Kind+" "+a.name()+", which has no pods")
		case !l.HasProfile(a.pods[0].Pod.Spec.SchedulerName):
			invalid = fmt.Errorf("spec.schedulerName: no profile of this scheduler is named %q", a.pods[0].Pod.Spec.SchedulerName)
			unused = append(unused, a.about.Kind+" "+a.name()+": "+invalid.Error())
		default:
			asks, leftOut = append(asks, cycle.Workload{Name: a.name(), Pods: a.pods}), append(leftOut, a.leftOut)
		}
	}
	if len(asks) == 0 {
		return x, invalid, nil
	}
	x, err = l.WhatIf(ctx, asks)
	if err != nil {
		return x, nil, err
	}
	x.LeftOut = append(append(x.LeftOut, leftOut[0]...), unused...)
	for i := range x.Further {
		x.Further[i].LeftOut = append(x.Further[i].LeftOut, leftOut[i+1]...)
	}
	return x, nil, nil
}
