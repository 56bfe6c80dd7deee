package publish

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evictd/evictd/internal/metric"
)

// shownVictims bounds the series that name victims.
const shownVictims = 10

// Counters are read from other components, from any goroutine; a nil function has no
// metric.
type Counters struct {
	// RecordsLost counts the passes that the flight recorder has dropped.
	RecordsLost func() uint64
	// IntentsRefused counts the evictions that did not survive this process before the journal
	// had them.
	IntentsRefused func() uint64
	// JournalChanges counts the changes of the journal, and JournalWritten those that its file has.
	JournalChanges, JournalWritten func() uint64
	// PodsWithoutCgroup is how many pods are known while none of them has a cgroup that was found.
	PodsWithoutCgroup func() int
}

// addInfo adds metrics of the process and of Counters.
func addInfo(set *metric.Set, cfg *Config) {
	own := set.Of(metric.Own, metric.Alpha)
	own.Gauge("evictd_info", "1, with version and mode.", "version", "mode", "dry_run").
		WithLabelValues(cfg.Version, cfg.Mode.String(), strconv.FormatBool(cfg.DryRun)).Set(1)
	set.Of(metric.Kubelet, metric.Alpha).Gauge("kubelet_node_name", "1, with the name of the Node.", "node").WithLabelValues(cfg.Node).Set(1)
	for _, c := range []struct {
		count      func() uint64
		name, help string
	}{
		{cfg.Counters.RecordsLost, "evictd_flight_records_lost_total", "Passes that the flight recorder dropped because its disk was slow."},
		{cfg.Counters.IntentsRefused, "evictd_eviction_intents_refused_total", "Evictions that began without a record outside the process, since too many were not in the journal yet: SIGKILL could lose their reports."},
		{cfg.Counters.JournalChanges, "evictd_journal_changes_total", "Changes of what the next start continues with: graces, conditions, evictions and restarts."},
		{cfg.Counters.JournalWritten, "evictd_journal_changes_written_total", "Those of evictd_journal_changes_total that are in the file of the journal. SIGKILL loses the others, but for evictions, which are in the runtime directory."},
	} {
		if c.count != nil {
			counter := own.AskedCounter(c.name, c.help)
			set.Ask(func(into chan<- prometheus.Metric) { into <- counter.Is(float64(c.count())) }, counter)
		}
	}
	if fault := cfg.ConfigurationRefused; fault != nil {
		refused := own.AskedGauge("evictd_configuration_refused", "1 while the configuration file has faults and the previous one is in use, also after a restart.")
		set.Ask(func(into chan<- prometheus.Metric) { into <- refused.Is(gaugeValue(fault() != "")) }, refused)
	}
	if count := cfg.Counters.PodsWithoutCgroup; count != nil {
		without := own.AskedGauge("evictd_pods_without_cgroup", "Pods that can be neither measured nor evicted because no cgroup of a pod was found.")
		set.Ask(func(into chan<- prometheus.Metric) { into <- without.Is(float64(count())) }, without)
	}
}

// addVictims adds the time of the last evictions.
func (p *Publisher) addVictims(set *metric.Set) {
	decided := set.Of(metric.Own, metric.Alpha).AskedGauge("evictd_victim_timestamp_seconds", "When each of the last ten victims was chosen, by signal and kind of threshold.", "namespace", "pod", "signal", "kind")
	set.Ask(func(into chan<- prometheus.Metric) {
		p.mu.Lock()
		defer p.mu.Unlock()
		last := map[[4]string]float64{} // a pod of one name may be evicted twice
		for _, e := range p.evictions[max(0, len(p.evictions)-shownVictims):] {
			last[[4]string{e.pod.Namespace, e.pod.Name, e.Signal, kind(e.hard)}] = float64(e.Decided.UnixMilli()) / 1e3
		}
		for labels, at := range last {
			into <- decided.Is(at, labels[:]...)
		}
	}, decided)
}
