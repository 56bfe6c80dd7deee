package main

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/golden"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
)

// serving starts a status address that answers with a document, and returns it.
func serving(t *testing.T, network string, answer http.HandlerFunc) string {
	t.Helper()
	at := "127.0.0.1:0"
	if network == "unix" {
		at = filepath.Join(t.TempDir(), "status.sock")
	}
	listener, err := net.Listen(network, at)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/{document}", answer)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	if network == "unix" {
		return "unix:" + at
	}
	return listener.Addr().String()
}

func status() nodestatus.Status {
	byMemory := []nodestatus.Ranked{
		{Pod: "kube-system/proxy", QOSClass: v1.PodQOSBurstable, Priority: 2000001000, Usage: "1Gi", Request: "0", Protected: "system-critical priority"},
		{Pod: "default/a", QOSClass: v1.PodQOSBestEffort, Usage: "700Mi", Request: "0", Because: "default/b has no statistics"},
		{Pod: "default/b", QOSClass: v1.PodQOSGuaranteed, Request: "1Gi"},
	}
	at := func(second int) nodestatus.Time {
		return nodestatus.Time{Time: time.Date(2026, 1, 2, 15, 4, second, 123456000, time.UTC)}
	}
	left := 12.5
	return nodestatus.Status{
		Node: "n1", Mode: nodestatus.Native, Time: at(30),
		Signals: []nodestatus.SignalStatus{
			{Name: "memory.available", Available: "900Mi", Capacity: "4Gi", Source: "poll", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "1Gi", Met: true}, {Kind: "soft", Quantity: "2Gi", Met: true}}},
			{Name: "allocatableMemory.available", Available: "900Mi", Capacity: "4Gi", Source: "poll", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "1Gi", Met: true}}},
			{Name: "nodefs.available", Available: "30Gi", Capacity: "40Gi", Source: "poll", SecondsToThreshold: &left, Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "4Gi"}}},
			{Name: "pid.available", Source: "poll", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "1k"}}},
		},
		MemoryAvailable: map[string]string{"workingSet": "900Mi", "available": "950Mi"},
		Conditions: []nodestatus.ConditionStatus{
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue, Reason: "KubeletHasInsufficientMemory", LastTransitionTime: at(10)},
			{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", LastTransitionTime: at(0)},
		},
		Taints: []string{"node.kubernetes.io/memory-pressure:NoSchedule"},
		Ranking: map[string][]nodestatus.Ranked{
			"memory.available": byMemory, "allocatableMemory.available": byMemory,
			"nodefs.available": {},
		},
		Evictions: []nodestatus.Eviction{
			{Pod: "default/x", Signal: "memory.available", Crossed: at(10), Decided: at(10), Gone: at(11), Freed: "690Mi", Message: "The node was low on resource: memory. "},
			{Pod: "default/z", Signal: "nodefs.available", Crossed: at(12), Decided: at(12), Gone: at(13), Held: "1503238553", Message: "The node was low on resource: ephemeral-storage. "},
			{Pod: "default/y", Signal: "pid.available", Crossed: at(20), Decided: at(20), Message: "The node was low on resource: pids. "},
		},
		Reclaimable: []nodestatus.Reclaimable{
			{Kind: "container", ID: "0123456789abcdef", Name: "main", Why: "pod-gone"},
			{Kind: "image", ID: "sha256:fedcba9876543210", Name: "example.org/app:1", Why: "space", WouldFree: "300Mi", WouldFreeInodes: "2k"},
		},
		Unreclaimable: []nodestatus.Reclaimable{{Kind: "image", ID: "sha256:0011223344556677", Name: "example.org/app:2", Why: "in-use"}},
		Reclaiming:    []nodestatus.Reclaiming{{Signal: "imagefs.available", Since: at(25)}},
	}
}

func TestStatusShowsTheNodeOfARunningDaemon(t *testing.T) {
	document, err := json.Marshal(status())
	require.NoError(t, err)
	for _, network := range []string{"unix", "tcp"} {
		address := serving(t, network, func(w http.ResponseWriter, _ *http.Request) { w.Write(document) })
		text := say(t, "", "status", "--status-address", address)
		if text.code != 0 || text.err != "" {
			t.Fatalf("%+v", text)
		}
		golden.Check(t, "testdata/status.txt", text.out)
		if got := say(t, "", "status", "-o", "json", "--status-address", address); got != (said{0, string(document), ""}) {
			t.Errorf("as JSON: %+v", got)
		}
	}
}

func TestStatusShowsWhyItCannotAnswer(t *testing.T) {
	unused := "unix:" + filepath.Join(t.TempDir(), "status.sock")
	for _, c := range []struct{ name, address, err string }{
		{"no program listens", unused, "no evictd answers at " + unused + ": dial unix " + unused[len("unix:"):] + ": connect: no such file or directory; start it (systemctl start evictd), or say where it is with --status-address"},
		{"it is not ready", serving(t, "tcp", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "context deadline exceeded", http.StatusServiceUnavailable)
		}), "evictd at %ADDRESS%: 503 Service Unavailable: context deadline exceeded"},
		{"it speaks of something else", serving(t, "tcp", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>")) }),
			"read status: invalid character '<' looking for beginning of value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := "evictd: " + strings.ReplaceAll(c.err, "%ADDRESS%", c.address) + "\n"
			if got := say(t, "", "status", "--status-address", c.address); got != (said{cli.ExitFault, "", want}) {
				t.Errorf("got %+v, want exit 1 and %s", got, want)
			}
		})
	}
}

func TestABusyStatusAddressIsRefused(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		address := serving(t, network, func(http.ResponseWriter, *http.Request) {})
		want := "evictd: --status-address: listen tcp " + address + ": bind: address already in use\n"
		if network == "unix" {
			want = "evictd: --status-address: " + address[len("unix:"):] + " is in use by another process: end that one, or give another address\n"
		}
		got := say(t, "", "run", "--dry-run", "--mode", "observe", "--node-memory", "1Gi", "--state-dir", filepath.Join(t.TempDir(), "state"), "--cri-endpoint", "none", "--status-address", address)
		if got != (said{cli.ExitBadInput, "", want}) {
			t.Errorf("got %+v, want exit 2 and %s", got, want)
		}
	}
}
