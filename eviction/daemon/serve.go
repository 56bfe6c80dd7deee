package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/internal/serve"
)

// handler sets the routes of the status address.
func (d *Daemon) handler(metrics *metric.Set) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", serve.Probe(func() bool {
		last := d.publisher.LastPass()
		return last.IsZero() || time.Since(last) < 3*d.cfg.HousekeepingInterval+serve.Timeout
	}))
	mux.HandleFunc("GET /readyz", d.ready)
	mux.HandleFunc("GET /metrics", serve.OneAtATime()(metrics.Handler().ServeHTTP))
	turn := serve.OneAtATime()
	mux.HandleFunc("GET /v1/status", turn(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), serve.Timeout)
		defer cancel()
		status, err := d.publisher.Status(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		serve.Send(w, status, d.log)
	}))
	mux.HandleFunc("GET /v1/why", serve.OneAtATime()(d.why)) // which waits for the disk
	mux.HandleFunc("GET /v1/explain", turn(d.explain))
	d.page.Handle(mux)
	return mux
}

// ready serves /readyz: 200 after the first pass, as long as a pod can be evicted or none is known. With exclude=pods the
// pods make no difference, and with include=configuration the configuration has to be that of the file.
func (d *Daemon) ready(w http.ResponseWriter, r *http.Request) {
	asked, why := r.URL.Query(), ""
	if faults := d.configurationRefused(); faults != "" && asked.Get("include") == "configuration" {
		why = "the configuration is refused, and the one before it is in use: " + faults
	}
	if asked.Get("exclude") != "pods" {
		why = cmp.Or(d.unprotected(), why)
	}
	if why != "" {
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	serve.Probe(d.publisher.Ready)(w, r)
}

// explain serves /v1/explain?pod=NAME.
func (d *Daemon) explain(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), serve.Timeout)
	defer cancel()
	pod := r.URL.Query().Get("pod")
	e, found, err := d.publisher.Explain(ctx, pod)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case !found:
		http.Error(w, fmt.Sprintf("no pod %s runs on node %s", pod, e.Node), http.StatusNotFound)
		return
	}
	serve.Send(w, e, d.log)
}
