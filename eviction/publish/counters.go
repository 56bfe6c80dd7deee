package publish

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
)

// shownVictims bounds the series that name victims.
const shownVictims = 10

// Counters are what others count, from any goroutine; what is nil does not exist here.
type Counters struct {
	// RecordsLost counts what the flight recorder could not take in time.
	RecordsLost func() uint64
	// ConfigurationRefused says whether the last configuration was.
	ConfigurationRefused func() bool
}

// addAsides adds what runs here, and what others count.
func addAsides(set *metric.Set, cfg *Config) {
	own := set.Of(metric.Own, metric.Alpha)
	own.Gauge("evictd_info", "1, with what runs.", "version", "mode", "dry_run").
		WithLabelValues(cfg.Version, cfg.Mode.String(), strconv.FormatBool(cfg.DryRun)).Set(1)
	set.Of(metric.Kubelet, metric.Alpha).Gauge("kubelet_node_name", "1, with the Node that evictd speaks for.", "node").WithLabelValues(cfg.Node).Set(1)
	if count := cfg.Counters.RecordsLost; count != nil {
		lost := own.AskedCounter("evictd_flight_records_lost_total", "Passes that the flight recorder could not take in time, for its disk was slow.")
		set.Ask(func(into chan<- prometheus.Metric) { into <- lost.Is(float64(count())) }, lost)
	}
	if is := cfg.Counters.ConfigurationRefused; is != nil {
		refused := own.AskedGauge("evictd_configuration_refused", "1 while the configuration file has faults and an older one holds.")
		set.Ask(func(into chan<- prometheus.Metric) { into <- refused.Is(truth(is())) }, refused)
	}
}

// addVictims adds who went last, and why.
func (p *Publisher) addVictims(set *metric.Set) {
	decided := set.Of(metric.Own, metric.Alpha).AskedGauge("evictd_victim_timestamp_seconds", "When each of the last ten victims was chosen, by what for.", "namespace", "pod", "signal", "kind")
	set.Ask(func(into chan<- prometheus.Metric) {
		p.mu.Lock()
		defer p.mu.Unlock()
		last := map[[4]string]float64{} // a name may go twice
		for _, e := range p.evictions[max(0, len(p.evictions)-shownVictims):] {
			last[[4]string{e.intent.Namespace, e.intent.Name, e.Signal, kind(e.intent.Hard)}] = float64(e.Decided.UnixMilli()) / 1e3
		}
		for labels, at := range last {
			into <- decided.Is(at, labels[:]...)
		}
	}, decided)
}
