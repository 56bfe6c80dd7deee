package scheduleradapter

import (
	"context"
	"errors"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics/prometheus/slis"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/internal/metric"
	"github.com/evictd/evictd/scheduleradapter/secureserving"
)

// securePort is what --secure-port serves.
type securePort struct {
	options *secureserving.Options
	flags   *pflag.FlagSet
	config  *configv1.KubeSchedulerConfiguration
	version string
}

// handlers is a mux that lists its paths.
type handlers struct {
	http.ServeMux
	paths []string
}

func (h *handlers) Handle(path string, handler http.Handler) {
	h.paths = append(h.paths, strings.TrimPrefix(path, "GET "))
	h.ServeMux.Handle(path, handler)
}

// secureHandler answers what kube-scheduler answers at its secure port. The scheduler is
// not ready after ctx has ended.
func (d *daemon) secureHandler(ctx context.Context, port securePort, metrics *metric.Set) http.Handler {
	mux := &handlers{}
	alive := check("scheduling-loop", d.loop.Alive, "the scheduling loop does not answer")
	synced := check("sched-handler-sync", d.watch.Ready, "informers have not synced")
	healthz.InstallHandler(mux, healthz.PingHealthz, alive, d.election)
	healthz.InstallLivezHandler(mux, healthz.PingHealthz, alive)
	healthz.InstallReadyzHandler(mux, healthz.PingHealthz, d.election, healthz.NewShutdownHealthz(ctx.Done()), synced)
	slis.SLIMetrics{}.Install(mux)
	mux.Handle("/metrics", metrics.Handler())
	mux.Handle("/configz", secureserving.Configz(port.config))
	mux.Handle("/flagz", secureserving.Flagz(port.flags))
	if d.cfg.Profiling {
		handleProfiles(mux)
	}
	paths := append(slices.Clone(mux.paths), "/statusz")
	slices.Sort(paths)
	mux.Handle("/statusz", secureserving.Statusz(port.version, time.Now(), paths))
	return mux
}

// check is a health check of a condition.
func check(name string, holds func() bool, otherwise string) healthz.HealthChecker {
	return healthz.NamedCheck(name, func(*http.Request) error {
		if !holds() {
			return errors.New(otherwise)
		}
		return nil
	})
}

func handleProfiles(mux interface{ Handle(string, http.Handler) }) {
	for path, serve := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.Handle("GET /debug/pprof/"+path, serve)
	}
}
