package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/nodestatus"
)

// TestDoctorSaysWhetherTheKubeletOrEvictdEvictsFirst has a process of a kubelet in a directory.
//
// rule: M.103
func TestDoctorSaysWhetherTheKubeletOrEvictdEvictsFirst(t *testing.T) {
	ours := []nodestatus.SignalStatus{
		{Name: "memory.available", Capacity: "4Gi", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "500Mi"}, {Kind: "soft", Quantity: "1Gi"}}},
		{Name: "nodefs.available", Capacity: "100Gi", Thresholds: []nodestatus.ThresholdStatus{{Kind: "hard", Quantity: "15Gi"}}},
		{Name: "pid.available", Capacity: "32k"},
	}
	const none = `{memory.available: 0%, nodefs.available: 0%}`
	for _, c := range []struct {
		name        string
		mode        nodestatus.Mode
		config      string // the fields of the kubelet's file
		dropIn      string
		flags       []string
		want, other string // of the finding; other is a part that it has not
		ok          bool
	}{
		{"below", nodestatus.Backstop, `evictionHard: {memory.available: 100Mi, nodefs.available: 10%}`, "", nil,
			"evictd evicts first: memory.available, kubelet 100Mi, evictd 500Mi; nodefs.available, kubelet 10.0Gi, evictd 15Gi", "the kubelet evicts", true},
		{"the kubelet's defaults", nodestatus.Backstop, `failCgroupV1: false`, "", nil, "evictd evicts first: memory.available, kubelet 100Mi, evictd 500Mi", "", true},
		{"equal", nodestatus.Backstop, `evictionHard: {memory.available: 500Mi}`, "", nil, "the kubelet evicts first for memory.available, kubelet 500Mi, evictd 500Mi", "nodefs", false},
		{"a soft one above", nodestatus.Backstop, "evictionHard: {memory.available: 100Mi}\nevictionSoft: {memory.available: 20%}\nevictionSoftGracePeriod: {memory.available: 1m}", "", nil,
			"the kubelet evicts first for memory.available, kubelet 819Mi, evictd 500Mi", "", false},
		{"of a signal for which evictd has none", nodestatus.Backstop, `evictionHard: {pid.available: 10%}`, "", nil,
			"the kubelet evicts first for pid.available, kubelet 3.2k, evictd no threshold", "", false},
		{"in a drop-in", nodestatus.Backstop, `evictionHard: {memory.available: 100Mi, nodefs.available: 10%}`, `evictionHard: {nodefs.available: 20%}`, nil,
			"the kubelet evicts first for nodefs.available, kubelet 20.0Gi, evictd 15Gi", "memory", false},
		{"by a flag", nodestatus.Backstop, `evictionHard: {memory.available: 100Mi}`, "", []string{"--v=2", "--node-ip", "10.0.0.1", "--eviction-hard=memory.available<1Gi"},
			"the kubelet evicts first for memory.available, kubelet 1Gi, evictd 500Mi", "", false},
		{"off", nodestatus.Takeover, `evictionHard: ` + none, "", nil, "the kubelet has none", "", true},
		{"not off", nodestatus.Takeover, `evictionHard: {}`, `evictionHard: {memory.available: 100Mi}`, nil, "the kubelet evicts first for memory.available, kubelet 100Mi, evictd 500Mi", "", false},
		{"observed only", nodestatus.Observe, `evictionHard: {memory.available: 1Gi}`, "", nil, "the kubelet evicts first for memory.available, kubelet 1Gi, evictd 500Mi", "", true},
		{"of another version", nodestatus.Backstop, "ofAnotherVersion: 1\nevictionHard: " + none, "", nil, "the kubelet has none", "", true},
		{"not readable", nodestatus.Backstop, `evictionHard: [`, "", nil, "the configuration of the kubelet, pid 7: read KubeletConfiguration", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc := t.TempDir()
			write := func(path, text string) {
				t.Helper()
				path = filepath.Join(proc, "7", path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
			write("root/etc/kubelet.yaml", header+c.config+"\n")
			write("cwd/drop/1.conf", header+c.dropIn+"\n")
			write("cwd/drop/2.yaml", header+"evictionHard: {memory.available: 3Gi}\n")
			write("cmdline", strings.Join(append([]string{"/usr/bin/kubelet", "--config", "/etc/kubelet.yaml", "--config-dir=drop"}, c.flags...), "\x00")+"\x00")
			address := serving(t, "unix", func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode(nodestatus.Status{Mode: c.mode, Signals: ours}); err != nil {
					t.Error(err)
				}
			})
			found := kubeletFindings(t.Context(), at(address), proc, daemon.Kubelet{PID: 7, Program: "kubelet", Holds: "known by its name"})
			if len(found) != 1 {
				t.Fatalf("found %+v", found)
			}
			f := found[0]
			if !strings.HasPrefix(f.Is, c.want) || c.other != "" && strings.Contains(f.Is, c.other) || f.OK != c.ok || f.OK != (f.Lost == "") {
				t.Errorf("found %+v, want ok %t, %q", f, c.ok, c.want)
			}
		})
	}
	if found := kubeletFindings(t.Context(), at("unix:/none"), "/proc", daemon.Kubelet{}); found != nil {
		t.Errorf("without a kubelet: %+v", found)
	}
}
