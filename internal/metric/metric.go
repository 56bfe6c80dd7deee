// Package metric makes the metrics of a program: each is registered and described
// in one place, so that docs/metrics.md is made of what there is, whether it has a
// value yet or not. It never measures.
package metric

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Owner is the program whose name a metric has.
type Owner string

// The owners of names.
const (
	Own               Owner = "own"
	Kubelet           Owner = "kubelet"
	Scheduler         Owner = "kube-scheduler"
	ControllerManager Owner = "kube-controller-manager"
	Client            Owner = "client-go"
	Library           Owner = "Prometheus client"
)

// Stability says how a metric may change, in the words of Kubernetes.
type Stability string

// A stable metric stays; one that is not may change with any release.
const (
	Alpha  Stability = "alpha"
	Beta   Stability = "beta"
	Stable Stability = "stable"
)

// family describes a metric, also one without a value.
type family struct {
	name, help, kind string
	labels           []string
	owner            Owner
	stability        Stability
}

// Set is the metrics of a program.
type Set struct {
	registry *prometheus.Registry
	families []family
}

// NewSet is empty.
func NewSet() *Set { return &Set{registry: prometheus.NewRegistry()} }

// AddProcess adds what the Prometheus client knows of this process.
func (s *Set) AddProcess() {
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}

// Gatherer reads what the page would say.
func (s *Set) Gatherer() prometheus.Gatherer { return s.registry }

// Handler serves the page.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{})
}

// Of makes metrics of the set whose names are the owner's.
func (s *Set) Of(owner Owner, stability Stability) Maker { return Maker{s, owner, stability} }

// Ask has collect called whenever the page is read; it sends values of what is
// asked, or none.
func (s *Set) Ask(collect func(into chan<- prometheus.Metric), asked ...Asked) {
	s.registry.MustRegister(collector{collect, asked})
}

// Maker makes metrics, each with its name, what it says, and its labels.
type Maker struct {
	set       *Set
	owner     Owner
	stability Stability
}

func (m Maker) note(kind, name, help string, labels []string) {
	m.set.families = append(m.set.families, family{name, help, kind, labels, m.owner, m.stability})
}

// Counter only rises.
func (m Maker) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	m.note("counter", name, help, labels)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	m.set.registry.MustRegister(v)
	return v
}

// Gauge rises and falls.
func (m Maker) Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	m.note("gauge", name, help, labels)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.set.registry.MustRegister(v)
	return v
}

// Histogram counts by size.
func (m Maker) Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	m.note("histogram", name, help, labels)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	m.set.registry.MustRegister(v)
	return v
}

// AskedCounter is a counter for Set.Ask.
func (m Maker) AskedCounter(name, help string, labels ...string) Asked {
	return m.asked("counter", prometheus.CounterValue, name, help, labels)
}

// AskedGauge is a gauge for Set.Ask.
func (m Maker) AskedGauge(name, help string, labels ...string) Asked {
	return m.asked("gauge", prometheus.GaugeValue, name, help, labels)
}

// AskedSummary is a summary without quantiles for Set.Ask.
func (m Maker) AskedSummary(name, help string, labels ...string) Asked {
	return m.asked("summary", prometheus.UntypedValue, name, help, labels)
}

func (m Maker) asked(kind string, value prometheus.ValueType, name, help string, labels []string) Asked {
	m.note(kind, name, help, labels)
	return Asked{prometheus.NewDesc(name, help, labels, nil), value}
}

// Asked is a metric that has values only when the page is read.
type Asked struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Is a value for Set.Ask.
func (a Asked) Is(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(a.desc, a.kind, value, labels...)
}

// Sums is the value of a summary.
func (a Asked) Sums(count uint64, sum float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstSummary(a.desc, count, sum, nil, labels...)
}

// collector is what Prometheus sees of Ask.
type collector struct {
	collect func(into chan<- prometheus.Metric)
	asked   []Asked
}

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, a := range c.asked {
		descs <- a.desc
	}
}

func (c collector) Collect(into chan<- prometheus.Metric) { c.collect(into) }
