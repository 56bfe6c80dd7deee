package scheduleradapter

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/secureserving"
)

// rule: S8.33
func TestFlagsWithoutACommandAreThoseOfKubeScheduler(t *testing.T) {
	for _, c := range []struct{ args, want []string }{
		{nil, nil},
		{[]string{"--help"}, []string{"--help"}},
		{[]string{"--version"}, []string{"version"}},
		{[]string{"run", "--config=f"}, []string{"run", "--config=f"}},
		{[]string{"--leader-elect=true"}, []string{"run", "--secure-port=10259", "--leader-elect=true"}},
	} {
		if got := asKubeScheduler(c.args); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.args, got, c.want)
		}
	}
}

// parse adds the flags and reads a command line.
func parse(t *testing.T, args ...string) (*kubeFlags, *secureserving.Options) {
	t.Helper()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.String("config", "", "")
	k, secure := addKubeFlags(flags), secureserving.Flags(flags)
	require.NoError(t, flags.Parse(args))
	return k, secure
}

// rule: S8.34
func TestFlagsWithoutEffectAreWarnedAbout(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--v=2 --secure-port=10259 --bind-address=127.0.0.1", ""},
		{"--kube-api-qps 50 --permit-port-sharing --secure-port=1", "--kube-api-qps has no effect: the client does not limit its rate; API priority and fairness does\n--permit-port-sharing has no effect: the port is not shared"},
		{"--bind-address=127.0.0.1", "--bind-address has no effect: --secure-port is 0"},
	} {
		k, secure := parse(t, strings.Fields(c.args)...)
		if got := strings.Join(k.warnings(secure), "\n"); got != c.want {
			t.Errorf("%s: warnings %q, want %q", c.args, got, c.want)
		}
	}
}

// rule: S8.35
func TestLeaderElectionFlagsOverrideTheFile(t *testing.T) {
	k, _ := parse(t, "--leader-elect=false", "--leader-elect-lease-duration=60s", "--leader-elect-resource-name=other")
	var file config.File
	file.LeaderElection.RetryPeriod.Duration = time.Second
	k.override(&file)
	e := file.LeaderElection
	if *e.LeaderElect || e.LeaseDuration.Duration != time.Minute || e.ResourceName != "other" || e.RetryPeriod.Duration != time.Second || e.RenewDeadline.Duration != 0 {
		t.Errorf("got %+v", e)
	}
}

func TestFaultyFlagsOfTheSecurePortAreTheCallersFault(t *testing.T) {
	for flag, want := range map[string]string{
		"--secure-port=70000":                         "--secure-port 70000: expected 0 to 65535",
		"--tls-cert-file=c":                           "--tls-cert-file and --tls-private-key-file: expected both, or none",
		"--tls-min-version=VersionTLS9":               "--tls-min-version: ",
		"--tls-cipher-suites=none":                    "--tls-cipher-suites: ",
		"--authorization-always-allow-paths=/a*b":     "--authorization-always-allow-paths: ",
		"--leader-elect-lease-duration=1s":            "flags: leaderElection.leaseDuration",
		"--authentication-kubeconfig=/does/not/exist": "--authentication-kubeconfig: ",
	} {
		code, _, errs := execute(t.Context(), "--server=http://127.0.0.1:1", "--status-address=none", flag)
		if code != 2 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q; want %q", flag, code, errs, want)
		}
	}
}
