package config_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/evictd/evictd/eviction/config"
)

// TestAKubeletsFilesAreLoadedAsTheKubeletLoadsThem has what the loading of Kubernetes 1.37 comes to (cmd/kubelet/app).
//
// rule: M.194
func TestAKubeletsFilesAreLoadedAsTheKubeletLoadsThem(t *testing.T) {
	const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	defaults := map[string]string{"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "imagefs.inodesFree": "5%"}
	with := func(signal, value string) map[string]string {
		changed := maps.Clone(defaults)
		changed[signal] = value
		return changed
	}
	for _, c := range []struct {
		name    string
		base    string // "-" for none
		dropIns []string
		want    map[string]string // evictionHard; nil for a kubelet that does not start
	}{
		{"no file", "-", nil, map[string]string{}},
		{"an empty file", "", nil, defaults},
		{"none", "evictionHard: {}", nil, map[string]string{}},
		{"one replaces all", "evictionHard: {memory.available: 1Gi}", nil, map[string]string{"memory.available": "1Gi"}},
		{"one beside the defaults", "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true", nil, with("memory.available", "1Gi")},
		{"a drop-in adds to the defaults", "", []string{"evictionHard: {memory.available: 1Gi}"}, with("memory.available", "1Gi")},
		{"drop-ins without a file", "-", []string{"evictionHard: {memory.available: 1Gi}"}, map[string]string{"memory.available": "1Gi"}},
		{"defaults are not merged by a drop-in", "evictionHard: {memory.available: 1Gi}", []string{"mergeDefaultEvictionSettings: true"}, map[string]string{"memory.available": "1Gi"}},
		{"null deletes the thresholds", "", []string{"evictionHard: null"}, map[string]string{}},
		{"null deletes a key", "evictionHard: {memory.available: 1Gi, pid.available: 5%}", []string{"evictionHard: {pid.available: null}"}, map[string]string{"memory.available": "1Gi"}},
		{"the last drop-in wins", "", []string{"evictionHard: {memory.available: 1Gi}", "evictionHard: {memory.available: 2Gi}"}, with("memory.available", "2Gi")},
		{"deleted and given again", "", []string{"evictionHard: null", "evictionHard: {memory.available: 2Gi}"}, map[string]string{"memory.available": "2Gi"}},
		{"a field of a later version", "later: {a: 1}\nevictionHard: {memory.available: 1Gi}", []string{"later: {b: 1}"}, map[string]string{"memory.available": "1Gi"}},
		{"a key twice in the file", "evictionHard: {memory.available: 1Gi}\nevictionHard: {pid.available: 5%}", nil, map[string]string{"pid.available": "5%"}},
		{"a key twice in a drop-in", "", []string{"evictionHard: {}\nevictionHard: {}"}, nil},
		{"a wrong type", "evictionHard: [a]", nil, nil},
		{"a wrong type in a drop-in", "", []string{"evictionHard: {memory.available: 1}"}, nil},
	} {
		var base []byte
		if c.base != "-" {
			base = []byte(header + c.base + "\n")
		}
		var dropIns [][]byte
		for _, text := range c.dropIns {
			dropIns = append(dropIns, []byte(header+text+"\n"))
		}
		got, err := config.LoadKubelet(base, dropIns)
		if (err != nil) != (c.want == nil) || err == nil && !maps.Equal(got.EvictionHard, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.name, got.EvictionHard, err, c.want)
		}
	}
}

// TestAKubeletsFileSaysWhereThingsAre: the cgroup of pods by pkg/kubelet/cm.
func TestAKubeletsFileSaysWhereThingsAre(t *testing.T) {
	for text, want := range map[string]string{
		"cgroupDriver: systemd":                        "",
		"cgroupRoot: /":                                "",
		"cgroupRoot: /kubelet":                         "kubelet/kubepods,kubelet.slice/kubelet-kubepods.slice",
		"cgroupRoot: /kubelet\ncgroupDriver: cgroupfs": "kubelet/kubepods",
		"cgroupRoot: /kubelet\ncgroupDriver: systemd":  "kubelet.slice/kubelet-kubepods.slice",
		"cgroupRoot: /a/b-c\ncgroupDriver: systemd":    "a.slice/a-b_c.slice/a-b_c-kubepods.slice",
		"cgroupRoot: a\ncgroupsPerQOS: false\ncgroupDriver: cgroupfs\nenforceNodeAllocatable: [none]": "a",
	} {
		c, err := config.Load([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text + "\n"))
		if err != nil || c.PodsCgroup != want || c.CgroupRoot != "" {
			t.Errorf("%s: %q, %v; want %q", strings.ReplaceAll(text, "\n", "; "), c.PodsCgroup, err, want)
		}
	}
	c, err := config.Load([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\npodLogsDir: /data/logs\ncontainerRuntimeEndpoint: /run/crio/crio.sock\n"))
	if err != nil || c.PodLogsDir != "/data/logs" || c.CRIEndpoint != "unix:/run/crio/crio.sock" {
		t.Errorf("%q, %q, %v", c.PodLogsDir, c.CRIEndpoint, err)
	}
}
