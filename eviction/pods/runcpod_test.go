package pods_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/pods"
)

func TestContainersThatOnlyRuncKnowsBecomePods(t *testing.T) {
	const gi = 1 << 30
	containers := []inventory.RuncContainer{
		{ID: "alone", Cgroup: "/sys/fs/cgroup/pods/alone"},
		{ID: "limited", Cgroup: "/sys/fs/cgroup/pods/limited", MemoryLimit: gi},
		{ID: "reserved", Cgroup: "/sys/fs/cgroup/pods/reserved", MemoryLimit: gi, MemoryReservation: gi / 2},
		{ID: "whole", Cgroup: "/sys/fs/cgroup/pods/whole", MemoryLimit: gi, CPUQuota: 50000, CPUPeriod: 100000},
		{ID: "nowhere"},
		{ID: "1a", Cgroup: "/sys/fs/cgroup/pods/podu/1a", Sandbox: "s", UID: "u", Namespace: "shop", Name: "cart", Container: "app"},
		{ID: "1b", Cgroup: "/sys/fs/cgroup/pods/podu/1b", Sandbox: "s", UID: "u", Namespace: "shop", Name: "cart", Container: "side"},
		{ID: "1c", Cgroup: "/sys/fs/cgroup/pods/podu/1c", Sandbox: "s", UID: "u", Namespace: "shop", Name: "cart"},
		{ID: "2a", Cgroup: "/sys/fs/cgroup/pods/two/2a", Sandbox: "t", Namespace: "shop", Name: "old", Container: "app"},
	}
	var e pods.Estimator
	made := map[string]pods.RuncPod{}
	for _, b := range e.RuncPods(containers) {
		made[b.Namespace+"/"+b.Name] = b
		if !e.Estimated(b.Pod) {
			t.Errorf("%s is not known to be estimated", b.Name)
		}
	}
	for name, want := range map[string]struct {
		uid, cgroup string
		qos         v1.PodQOSClass
		request     int64
		children    map[string]string
	}{
		"runc/alone":    {"runc-alone", "/sys/fs/cgroup/pods/alone", v1.PodQOSBestEffort, 0, map[string]string{"alone": "."}},
		"runc/limited":  {"runc-limited", "/sys/fs/cgroup/pods/limited", v1.PodQOSBurstable, gi, map[string]string{"limited": "."}},
		"runc/reserved": {"runc-reserved", "/sys/fs/cgroup/pods/reserved", v1.PodQOSBurstable, gi / 2, map[string]string{"reserved": "."}},
		"runc/whole":    {"runc-whole", "/sys/fs/cgroup/pods/whole", v1.PodQOSGuaranteed, gi, map[string]string{"whole": "."}},
		"shop/cart":     {"u", "/sys/fs/cgroup/pods/podu", v1.PodQOSBestEffort, 0, map[string]string{"app": "1a", "side": "1b"}},
		"shop/old":      {"runc-t", "/sys/fs/cgroup/pods/two", v1.PodQOSBestEffort, 0, map[string]string{"app": "2a"}},
	} {
		b, is := made[name]
		if !is {
			t.Errorf("there is no pod %s", name)
			continue
		}
		d := eviction.Digest(b.Pod)
		if string(b.UID) != want.uid || b.Cgroup != want.cgroup || d.QOS != want.qos || d.MemoryRequest != want.request || len(d.Containers) != len(want.children) {
			t.Errorf("%s: got %s in %s, %s, request %d, %d containers", name, b.UID, b.Cgroup, d.QOS, d.MemoryRequest, len(d.Containers))
		}
		for container, child := range want.children {
			if b.Children[container] != child {
				t.Errorf("%s: the group of %s is %q", name, container, b.Children[container])
			}
		}
		delete(made, name)
	}
	for name := range made {
		t.Errorf("pod %s too many", name)
	}
	first := e.RuncPods(containers)
	containers[0].MemoryLimit = gi
	for i, b := range e.RuncPods(containers) {
		if same := b.Pod == first[i].Pod; same != (b.Name != "alone") {
			t.Errorf("pod %s is the same value: %t", b.Name, same)
		}
	}
}
