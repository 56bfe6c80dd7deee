package whatif

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"

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
	t, invalid := read(body)
	if invalid != nil {
		return x, invalid, nil
	}
	if count != "" {
		if t.count, err = strconv.Atoi(count); err != nil {
			return x, fmt.Errorf("count %q: expected a number", count), nil
		}
	}
	if t.count < 1 || t.count > cycle.MaxWhatIf {
		return x, fmt.Errorf("count %d: expected 1 to %d", t.count, cycle.MaxWhatIf), nil
	}
	if invalid, err = t.complete(ctx, l.PriorityClass); invalid != nil || err != nil {
		return x, invalid, err
	}
	if name := t.pod.Spec.SchedulerName; !l.HasProfile(name) {
		return x, fmt.Errorf("spec.schedulerName: no profile of this scheduler is named %q", name), nil
	}
	x, err = l.WhatIf(ctx, cycle.Question{Pod: t.pod, Count: t.count})
	x.LeftOut = append(x.LeftOut, t.leftOut...)
	return x, nil, err
}
