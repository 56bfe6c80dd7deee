package daemon

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// newTracker makes a tracker on a captured host of cgroup v2, and n of its pods, whose
// groups hold one process each.
func newTracker(t *testing.T, n int) (*podTracker, []*v1.Pod) {
	t.Helper()
	host := t.TempDir()
	require.NoError(t, os.CopyFS(host, os.DirFS("../../cgroup/testdata/v2")))
	cgroups, err := cgroup.Discover(host)
	require.NoError(t, err)
	tracker := &podTracker{log: slog.New(slog.DiscardHandler), cgroups: cgroups, podsGroup: &podsCgroup{current: cgroup.PodsAt("/kubepods")}, disks: collect.NewDiskScanner(slog.New(slog.DiscardHandler)), arrives: func(types.UID) bool { return false }}
	var all []*v1.Pod
	for i := range n {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i), UID: types.UID(fmt.Sprint("uid-", i))}}
		pod.Spec.Containers = []v1.Container{{Name: "app"}, {Name: "sidecar"}}
		all = append(all, pod)
		group := filepath.Join(cgroups.Mount("memory"), tracker.podsGroup.get().Pod(string(pod.UID), v1.PodQOSBestEffort))
		for _, dir := range []string{group, filepath.Join(group, "app"), filepath.Join(group, "sidecar")} {
			for file, text := range map[string]string{"memory.current": "4096\n", "memory.stat": "inactive_file 0\n", "pids.current": "1\n", "cgroup.procs": "", "cgroup.events": "populated 1\nfrozen 0\n", "cgroup.threads": ""} {
				put(t, filepath.Join(host, dir, file), text)
			}
		}
	}
	return tracker, all
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// use measures a pod and asks for its processes, as loop, killer and disk scan do.
func use(t *testing.T, p *trackedPod) {
	t.Helper()
	require.NoError(t, p.Meter.Read(&stats.Pod{}))
	if _, err := p.Target.Populated(); err != nil {
		t.Fatal(err)
	}
}

func TestDescriptorsOfPodsThatLeftAreClosed(t *testing.T) {
	tracker, manifests := newTracker(t, 200)
	before := openDescriptors(t)
	for one := range slices.Chunk(manifests, 10) {
		tracker.update(one, nil, nil, nil)
		for _, p := range tracker.pods() {
			use(t, p)
		}
		if now := openDescriptors(t); now <= before+10 {
			t.Fatalf("%d descriptors are open, %d before the pods: nothing was tested", now, before)
		}
		tracker.update(nil, nil, nil, nil)
		tracker.closeRemoved(func(types.UID) bool { return false })
		if now := openDescriptors(t); now != before {
			t.Fatalf("%d descriptors are open, %d before the pods", now, before)
		}
	}
}

func TestDescriptorsStayOpenWhileThePodIsInUse(t *testing.T) {
	tracker, manifests := newTracker(t, 1)
	before := openDescriptors(t)
	tracker.update(manifests, nil, nil, nil)
	p := tracker.pods()[0]
	use(t, p)
	open := openDescriptors(t)

	changed := manifests[0].DeepCopy() // the pod stays, with another manifest
	tracker.update([]*v1.Pod{changed}, nil, nil, nil)
	tracker.closeRemoved(func(uid types.UID) bool { return uid == p.UID })
	use(t, p)
	if now := openDescriptors(t); now != open {
		t.Errorf("%d descriptors are open, want %d: the pod is in use", now, open)
	}
	tracker.closeRemoved(func(types.UID) bool { return false })
	if now := openDescriptors(t); now != before {
		t.Errorf("%d descriptors are open, want %d: nothing of the pod was used since", now, before)
	}
	use(t, tracker.pods()[0])
	tracker.close()
	if now := openDescriptors(t); now != before {
		t.Errorf("%d descriptors are open at the end, want %d", now, before)
	}
}

// A disk scan that has begun before the pod left lists its processes after the close.
func TestAClosedCgroupIsUsableAndStaysClosed(t *testing.T) {
	tracker, manifests := newTracker(t, 1)
	tracker.update(manifests, nil, nil, nil)
	p := tracker.pods()[0]
	before := openDescriptors(t)
	err := p.group.use(func(opened *cgroup.Group) error {
		p.close() // in the middle of a call
		_, err := opened.Populated()
		return err
	})
	if populated, after := p.Target.Populated(); err != nil || after != nil || !populated {
		t.Errorf("populated %t, %v, %v", populated, err, after)
	}
	if err := p.Meter.Read(&stats.Pod{}); err != cgroup.ErrGone {
		t.Errorf("the closed meter says %v", err)
	}
	if now := openDescriptors(t); now != before {
		t.Errorf("%d descriptors are open, want %d", now, before)
	}
}
