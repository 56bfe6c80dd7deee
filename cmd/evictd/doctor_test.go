package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
)

func TestDoctorShowsHowTheDaemonStandsToItsContainerRuntime(t *testing.T) {
	for _, c := range []struct {
		name    string
		runtime *nodestatus.Runtime
		want    string
	}{
		{"none", nil, "-- evictd is configured to use none"},
		{"away", &nodestatus.Runtime{Error: "no socket"}, "-- no socket"},
		{"answers", &nodestatus.Runtime{Connected: true, Name: "containerd", Version: "v9", Endpoint: "unix:/x", Missing: []string{"A", "B"}}, "ok containerd v9 at unix:/x answers since 0001-01-01T00:00:00Z, without A, B"},
		{"fails in part", &nodestatus.Runtime{Connected: true, Name: "cri-o", Version: "1", Endpoint: "unix:/x", Failing: map[string]string{"ListImages": "layer not known"}}, "-- cri-o 1 at unix:/x answers since 0001-01-01T00:00:00Z; ListImages fails: layer not known"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode(nodestatus.Status{Runtime: c.runtime}); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			f := runtimeFinding(t.Context(), at(strings.TrimPrefix(server.URL, "http://")))
			if got := map[bool]string{true: "ok ", false: "-- "}[f.OK] + f.Is; got != c.want || f.OK != (f.Lost == "") {
				t.Errorf("%q, without it %q; want %q", got, f.Lost, c.want)
			}
		})
	}
}

// rule: S9.21
func TestDoctorShowsWhatHasStartedTheDaemon(t *testing.T) {
	for _, c := range []struct {
		name, groups string
		ok           bool
		want         string
	}{
		{"unit on v2", "0::/evictd.slice/evictd.service\n", true, "unit evictd.service"},
		{"unit on v1", "4:memory:/evictd.slice/evictd.service\n1:name=systemd:/evictd.slice/evictd.service\n0::/\n", true, "unit evictd.service"},
		{"pod on v2", "0::/evictd\n", false, "node.inPod"},
		{"pod on v1, as a pod shows it", "4:memory:/../../evictd\n3:cpuset:/\n1:name=systemd:/../../evictd\n", false, "node.inPod"},
		{"by hand", "0::/user.slice/user-0.slice\n", false, "no service"},
	} {
		if f := managerFinding(c.groups); f.OK != c.ok || !strings.Contains(f.Is, c.want) || f.OK != (f.Lost == "") {
			t.Errorf("%s: %+v; expected %v, %q", c.name, f, c.ok, c.want)
		}
	}
}

func TestDoctorShowsHowTheDaemonStandsToItsAPIServer(t *testing.T) {
	for _, c := range []struct {
		name string
		api  *nodestatus.API
		want []string // a part of each finding
	}{
		{"none", nil, []string{"-- API server: evictd was given none"}},
		{"away", &nodestatus.API{Error: "no answer from the API server: refused"}, []string{"-- API server: no answer from the API server: refused"}},
		{"answers", &nodestatus.API{Connected: true}, []string{"ok API server: answers since"}},
		{
			"refuses", &nodestatus.API{Connected: true, Refused: map[string]string{"taints": "forbidden", "else": "forbidden too"}, Conflict: "a kubelet"},
			[]string{"ok API server", "-- may write else: forbidden too", "-- may write taints: forbidden", "-- no other writer of the conditions: a kubelet"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode(nodestatus.Status{API: c.api}); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			findings := apiFindings(t.Context(), at(strings.TrimPrefix(server.URL, "http://")))
			if len(findings) != len(c.want) {
				t.Fatalf("%d findings, want %d: %+v", len(findings), len(c.want), findings)
			}
			for i, f := range findings {
				text := map[bool]string{true: "ok ", false: "-- "}[f.OK] + f.Name + ": " + f.Is
				if !strings.Contains(text, c.want[i]) || f.OK != (f.Lost == "") {
					t.Errorf("%q, without it %q; want %q", text, f.Lost, c.want[i])
				}
			}
		})
	}
	if findings := apiFindings(t.Context(), at("127.0.0.1:1")); len(findings) != 1 || findings[0].OK || !strings.Contains(findings[0].Is, "no running evictd to ask") {
		t.Errorf("no daemon: %+v", findings)
	}
}

// at asks an address as the commands do.
func at(address string) *serve.Client {
	return serve.ClientFlags(pflag.NewFlagSet("", pflag.ContinueOnError), "evictd", address)
}

func TestTroubleshootingHasASectionForEveryLine(t *testing.T) {
	page := require.ReadFile(t, "../../docs/troubleshooting.md")
	nobody := at("unix:" + t.TempDir() + "/none")
	ofKubelet := kubeletFindings(t.Context(), nobody, "/proc", daemon.Kubelet{PID: os.Getpid(), Program: "kubelet", Holds: "known by its name"})
	for _, f := range slices.Concat(examine(t.Context(), nobody), []finding{runtimeFinding(t.Context(), nobody)}, apiFindings(t.Context(), nobody), ofKubelet) {
		if !strings.Contains(string(page), "\n### "+f.Name+"\n") {
			t.Errorf("docs/troubleshooting.md has no section %q", f.Name)
		}
	}
}
