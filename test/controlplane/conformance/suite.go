package main

import (
	"regexp"

	"github.com/evictd/evictd/test/controlplane/scheduler"
)

// column is a cluster in which specs run: Kubernetes, with at most one program of evictd.
type column struct {
	name      string
	scheduler string
	embedded  bool // the API server is evictd's
}

const (
	kubernetes      = "Kubernetes"
	evictdAPIServer = "evictd-apiserver"
	apiSuite        = "api"
)

// columns are in the order of the table. The others are compared with the first.
var columns = []column{
	{name: kubernetes, scheduler: scheduler.Kube},
	{name: scheduler.Evictd, scheduler: scheduler.Evictd},
	{name: evictdAPIServer, scheduler: scheduler.Kube, embedded: true},
}

// suite is a choice of specs, and what their clusters have on.
type suite struct {
	name string
	// by are names of columns.
	by []string
	// labels is a filter of Ginkgo.
	labels string
	// texts are expressions of Ginkgo, one of which matches a spec; nil for any.
	texts []string
	// gates are feature gates of all programs, and apis of kube-apiserver.
	gates, apis string
}

// suites are all specs of [sig-scheduling] and [DRA] that hollow nodes can run, and those
// conformance specs of the API that they can run and whose kinds evictd-apiserver serves.
var suites = []suite{
	{name: "scheduling", by: []string{kubernetes, scheduler.Evictd, evictdAPIServer}, labels: `sig-scheduling && !/^(DRA|Feature:.*|Flaky)$/`},
	{name: "devices", by: bySchedulers, labels: `/^DRA$/ && !/^(Feature:.*|Flaky)$/`},
	{name: "async preemption", by: bySchedulers, labels: `/^Feature:SchedulerAsyncPreemption$/`},
	{
		name: "gangs", by: bySchedulers, labels: `sig-scheduling && /^FeatureGate:GenericWorkload$/ && !/^(DRA|Alpha|Flaky)$/`,
		gates: "GenericWorkload=true", apis: "scheduling.k8s.io/v1beta1=true",
	},
	{
		name: apiSuite, by: []string{kubernetes, evictdAPIServer}, labels: conformance,
		texts: []string{
			`\[sig-(api-machinery|apps|instrumentation)\]`,
			`\[sig-node\] (ConfigMap|Secrets) should (fail|run through|update|patch)`,
			`\[sig-node\] (PodTemplates|Lease|Node Lifecycle|RuntimeClass should support|Pods should (delete|patch|run through)|Pods Extended)`,
		},
	},
}

var bySchedulers = []string{kubernetes, scheduler.Evictd}

// reasons why specs do not run here: the first of which a spec has the label, or, in the suite api, whose
// text the name of a conformance spec matches.
var reasons = []struct {
	label  string
	text   *regexp.Regexp
	reason string
}{
	{label: "Feature:DynamicResourceAllocation", reason: "they run pods of a device driver, whose plugin a real kubelet calls; hollow nodes run no process"},
	{text: regexp.MustCompile(`AdmissionWebhook|CustomResource|AdmissionPolicy|Aggregator |CRDs|FieldValidation .* CR|Discovery should (locate|support)|priority and fairness|StorageVersionMigration`),
		reason: "evictd-apiserver has no custom resources, webhooks, admission policies, flow control and aggregated servers"},
	{text: regexp.MustCompile(`StatefulSet .* (Burst|Scaling should|should perform)|a basic image on each|proportional scaling|rollback without|pod generation should start|\bJob should (allow|create|execute|manage|mark|run|terminate)|successPolicy`),
		reason: "they ask the processes of pods, or wait for them to end; hollow nodes run none"},
	{text: regexp.MustCompile(`CronJob .*\[Slow\]`), reason: "they wait for five minutes that nothing happens"},
	{label: "Alpha", reason: "their feature is alpha and off by default"},
	{label: "Flaky", reason: "upstream calls them flaky"},
}
