package scheduleradapter

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentconfig "k8s.io/component-base/config"
	"k8s.io/component-base/config/options"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/secureserving"
)

// asKubeScheduler makes flags without a command those of `run`, with the default
// --secure-port of kube-scheduler, so that the command of its manifest works.
func asKubeScheduler(args []string) []string {
	switch {
	case len(args) == 0 || !strings.HasPrefix(args[0], "-") || args[0] == "-h" || args[0] == "--help":
		return args
	case args[0] == "--version":
		return []string{"version"}
	}
	return append([]string{"run", fmt.Sprintf("--secure-port=%d", secureserving.Port)}, args...)
}

// kubeFlags are flags of kube-scheduler that change the configuration or the log.
type kubeFlags struct {
	set       *pflag.FlagSet
	election  componentconfig.LeaderElectionConfiguration
	profiling bool
	verbosity int
	format    string
	writeTo   string
}

// addKubeFlags adds them, and hides those without effect.
func addKubeFlags(set *pflag.FlagSet) *kubeFlags {
	k := &kubeFlags{set: set, election: componentconfig.LeaderElectionConfiguration{
		LeaderElect: true, ResourceLock: "leases", ResourceName: configv1.SchedulerDefaultLockObjectName, ResourceNamespace: configv1.SchedulerDefaultLockObjectNamespace,
		LeaseDuration: metav1.Duration{Duration: 15 * time.Second}, RenewDeadline: metav1.Duration{Duration: 10 * time.Second}, RetryPeriod: metav1.Duration{Duration: 2 * time.Second},
	}}
	options.BindLeaderElectionFlags(&k.election, set)
	set.Lookup("leader-elect").Usage = "schedule only while holding the Lease of the configuration (default as configured; false with unix:PATH)"
	set.BoolVar(&k.profiling, "profiling", false, "serve /debug/pprof/; without --config only")
	set.IntVarP(&k.verbosity, "v", "v", 0, "verbosity of the log; from 4 on it has debug lines")
	set.StringVar(&k.format, "logging-format", "text", "text or json")
	set.StringVar(&k.writeTo, "write-config-to", "", "write the complete configuration to this file, and exit")
	for _, f := range removed {
		set.Var(refused(f.instead), f.name, "")
		set.Lookup(f.name).Hidden = true
	}
	for _, f := range withoutEffect {
		if f.isBool {
			set.Bool(f.name, false, "")
		} else {
			set.String(f.name, "", "")
		}
		set.Lookup(f.name).Hidden = true
	}
	return k
}

// withoutEffect are flags of kube-scheduler 1.37 that evictd-scheduler accepts and does
// not read.
var withoutEffect = []struct {
	name   string
	isBool bool
	why    string
}{
	{"allow-metric-labels", false, "labels of metrics are not limited"},
	{"allow-metric-labels-manifest", false, "labels of metrics are not limited"},
	{"authentication-tolerate-lookup-failure", true, "a failed lookup is logged and tried again"},
	{"cert-dir", false, "the self-signed certificate is in memory"},
	{"contention-profiling", true, "the block profile is not recorded"},
	{"disabled-metrics", false, "all metrics are served"},
	{"emulated-version", false, "only the behaviour of Kubernetes 1.37 is implemented"},
	{"emulation-forward-compatibility", true, "only the behaviour of Kubernetes 1.37 is implemented"},
	{"kube-api-burst", false, "the client does not limit its rate; API priority and fairness does"},
	{"kube-api-content-type", false, "clientConnection.contentType of --config sets it"},
	{"kube-api-qps", false, "the client does not limit its rate; API priority and fairness does"},
	{"log-flush-frequency", false, "the log is not buffered"},
	{"log-json-info-buffer-size", false, "the log is not buffered"},
	{"log-json-split-stream", true, "the log is standard error"},
	{"log-text-info-buffer-size", false, "the log is not buffered"},
	{"log-text-split-stream", true, "the log is standard error"},
	{"min-compatibility-version", false, "only the behaviour of Kubernetes 1.37 is implemented"},
	{"permit-address-sharing", true, "the port is not shared"},
	{"permit-port-sharing", true, "the port is not shared"},
	{"pod-max-in-unschedulable-pods-duration", false, "each event that may help a pod is observed"},
	{"show-hidden-metrics-for-version", false, "there are no hidden metrics"},
	{"tls-curve-preferences", false, "the Go library chooses the curve"},
	{"vmodule", false, "--v sets the verbosity of all packages"},
}

// removed are flags that kube-scheduler had, and what to use instead.
var removed = []struct{ name, instead string }{
	{"policy-config-file", "removed in Kubernetes 1.23: use --config, which reads a Policy too"},
	{"policy-configmap", "removed in Kubernetes 1.23: write the Policy to a file, and use --config, which reads it"},
	{"policy-configmap-namespace", "removed in Kubernetes 1.23: write the Policy to a file, and use --config, which reads it"},
	{"use-legacy-policy-config", "removed in Kubernetes 1.23: use --config, which reads a Policy too"},
	{"algorithm-provider", "removed in Kubernetes 1.23: use --config, with plugins or a scoringStrategy in profiles"},
	{"scheduler-name", "removed in Kubernetes 1.23: use --config, with schedulerName in profiles"},
	{"hard-pod-affinity-symmetric-weight", "removed in Kubernetes 1.23: use --config, with hardPodAffinityWeight in the args of InterPodAffinity"},
	{"lock-object-name", "removed in Kubernetes 1.24: use --leader-elect-resource-name"},
	{"lock-object-namespace", "removed in Kubernetes 1.24: use --leader-elect-resource-namespace"},
	{"address", "removed in Kubernetes 1.23: use --bind-address"},
	{"port", "removed in Kubernetes 1.23: use --secure-port"},
}

// refused is the value of a removed flag: what to use instead.
type refused string

func (refused) String() string     { return "" }
func (refused) Type() string       { return "string" }
func (r refused) Set(string) error { return errors.New(string(r)) }

// servingFlags have no effect while --secure-port is 0.
var servingFlags = []string{
	"authentication-kubeconfig", "authentication-skip-lookup", "authorization-always-allow-paths", "authorization-kubeconfig", "bind-address",
	"client-ca-file", "disable-http2-serving", "http2-max-streams-per-connection", "requestheader-allowed-names", "requestheader-client-ca-file",
	"requestheader-extra-headers-prefix", "requestheader-group-headers", "requestheader-uid-headers", "requestheader-username-headers", "tls-cert-file",
	"tls-cipher-suites", "tls-min-version", "tls-private-key-file", "tls-sni-cert-key",
}

// warnings names the flags that are set and have no effect.
func (k *kubeFlags) warnings(secure *secureserving.Options) (warnings []string) {
	for _, f := range withoutEffect {
		if k.set.Changed(f.name) {
			warnings = append(warnings, fmt.Sprintf("--%s has no effect: %s", f.name, f.why))
		}
	}
	for _, name := range servingFlags {
		if k.set.Changed(name) && !secure.Serves() {
			warnings = append(warnings, fmt.Sprintf("--%s has no effect: --secure-port is 0", name))
		}
	}
	return warnings
}

// override changes the configuration as the flags that are set demand.
func (k *kubeFlags) override(file *config.File) {
	e, flags := &file.LeaderElection, &k.election
	for name, set := range map[string]func(){
		"leader-elect":                    func() { e.LeaderElect = &flags.LeaderElect },
		"leader-elect-lease-duration":     func() { e.LeaseDuration = flags.LeaseDuration },
		"leader-elect-renew-deadline":     func() { e.RenewDeadline = flags.RenewDeadline },
		"leader-elect-retry-period":       func() { e.RetryPeriod = flags.RetryPeriod },
		"leader-elect-resource-lock":      func() { e.ResourceLock = flags.ResourceLock },
		"leader-elect-resource-name":      func() { e.ResourceName = flags.ResourceName },
		"leader-elect-resource-namespace": func() { e.ResourceNamespace = flags.ResourceNamespace },
		"profiling": func() {
			if !k.set.Changed("config") {
				file.EnableProfiling = &k.profiling
			}
		},
	} {
		if k.set.Changed(name) {
			set()
		}
	}
}

// log makes the log by --v and --logging-format. A log of JSON has the lines of client-go
// too.
func (k *kubeFlags) log(w io.Writer) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	if k.verbosity >= 4 {
		options.Level = slog.LevelDebug
	}
	switch k.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		log := slog.New(slog.NewJSONHandler(w, options))
		klog.SetSlogLogger(log)
		return log, nil
	}
	return nil, fmt.Errorf("--logging-format %s: expected text or json", k.format)
}
