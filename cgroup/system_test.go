package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// fixture copies a captured host, so that a test may write to it.
func fixture(t testing.TB, name string) (*System, string) {
	t.Helper()
	host := t.TempDir()
	require.NoError(t, os.CopyFS(host, os.DirFS(filepath.Join("testdata", name))))
	s, err := Discover(host)
	require.NoError(t, err)
	return s, host
}

// captured is a captured host, to be read alone.
func captured(t testing.TB, name string) *System {
	t.Helper()
	s, err := Discover(filepath.Join("testdata", name))
	require.NoError(t, err)
	return s
}

func open(t testing.TB, s *System, group string) *Group {
	t.Helper()
	g, err := s.Open(group)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

func TestTheVersionIsWhereTheMemoryControllerLives(t *testing.T) {
	for name, want := range map[string]struct {
		version         Version
		self            string
		memory, unified string
	}{
		"v1": {V1, "/system/evictd", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified"},
		"v2": {V2, "/system.slice/evictd.service", "/sys/fs/cgroup", "/sys/fs/cgroup"},
	} {
		s := captured(t, name)
		if s.Version() != want.version || s.Self() != want.self {
			t.Errorf("%s: got version %v and own group %q", name, s.Version(), s.Self())
		}
		if s.Mount("memory") != want.memory || s.Mount("") != want.unified || s.Mount("rdma") != "" {
			t.Errorf("%s: got mounts %q, %q, %q", name, s.Mount("memory"), s.Mount(""), s.Mount("rdma"))
		}
	}
}

func TestAHostWithoutMemoryControllerIsNamedAsSuch(t *testing.T) {
	host := t.TempDir()
	require.NoError(t, os.CopyFS(host, os.DirFS("testdata/v2")))
	put(t, host+"/sys/fs/cgroup/cgroup.controllers", "cpu pids\n")
	if _, err := Discover(host); !errors.Is(err, ErrNoMemoryController) {
		t.Errorf("got %v", err)
	}
	if _, err := Discover(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a mount table: got %v", err)
	}
}

func TestARootIsACgroupPathOrAPathUnderAMountPoint(t *testing.T) {
	for _, c := range []struct{ fixture, root, want string }{
		{"v2", "", "/"},
		{"v2", "/", "/"},
		{"v2", "/kubepods.slice", "/kubepods.slice"},
		{"v2", "/kubepods.slice/", "/kubepods.slice"},
		{"v2", "/sys/fs/cgroup", "/"},
		{"v2", "/sys/fs/cgroup/kubepods.slice", "/kubepods.slice"},
		{"v1", "/sys/fs/cgroup/memory", "/"},
		{"v1", "/sys/fs/cgroup/memory/kubepods/besteffort/podabcd", "/kubepods/besteffort/podabcd"},
		{"v1", "/sys/fs/cgroup/pids/kubepods/besteffort/podabcd", "/kubepods/besteffort/podabcd"},
		{"v1", "/kubepods/../kubepods/besteffort/podabcd", "/kubepods/besteffort/podabcd"},
	} {
		s := captured(t, c.fixture)
		if got, err := s.Resolve(c.root); err != nil || got != c.want {
			t.Errorf("%s: %q resolves to %q, %v; want %q", c.fixture, c.root, got, err, c.want)
		}
	}
}

func TestARootThatCannotBeMeasuredIsOneErrorNamingIt(t *testing.T) {
	s, host := fixture(t, "v2")
	require.NoError(t, os.Remove(host+"/sys/fs/cgroup/system.slice/memory.current"))
	for root, want := range map[string]string{
		"/nowhere":                "cgroup root /nowhere: open cgroup /nowhere: cgroup is gone",
		"kubepods.slice":          "cgroup root kubepods.slice: not an absolute path",
		"/sys/fs/cgroup/x":        "cgroup root /sys/fs/cgroup/x: open cgroup /x: cgroup is gone",
		"/system.slice":           "cgroup root /system.slice: the memory controller is not enabled for it",
		"/system.slice/pids.max":  "cgroup root /system.slice/pids.max: open cgroup /system.slice/pids.max: not a directory",
		"/sys/fs/cgroupkubepods/": "cgroup root /sys/fs/cgroupkubepods/: open cgroup /sys/fs/cgroupkubepods: cgroup is gone",
	} {
		_, err := s.Resolve(root)
		if _, ok := errors.AsType[*RootError](err); !ok || err.Error() != want {
			t.Errorf("got %v; want %s", err, want)
		}
	}
}

func TestInAContainerThePathIsThatBelowTheMount(t *testing.T) {
	_, host := fixture(t, "v2")
	put(t, host+"/proc/self/mountinfo", "31 22 0:26 /a/container /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	put(t, host+"/proc/self/cgroup", "0::/a/container/system.slice\n")
	s, err := Discover(host)
	require.NoError(t, err)
	if s.Self() != "/system.slice" {
		t.Errorf("own group is %q", s.Self())
	}
	if got, err := s.Resolve("/a/container/kubepods.slice"); err != nil || got != "/kubepods.slice" {
		t.Errorf("got %q, %v", got, err)
	}
	put(t, host+"/proc/self/cgroup", "0::/../elsewhere\n")
	if s, err = Discover(host); err != nil || s.Self() != "" {
		t.Errorf("own group outside the mount: got %q, %v", s.Self(), err)
	}
}

// rule: 1.33
func TestAPodIsFoundByTheKubeletsNames(t *testing.T) {
	const uid = "0a1b2c3d-1111-4222-8333-444455556666"
	for _, c := range []struct {
		parent string
		qos    v1.PodQOSClass
		want   string
	}{
		{"/kubepods", v1.PodQOSGuaranteed, "/kubepods/pod" + uid},
		{"/kubepods", v1.PodQOSBurstable, "/kubepods/burstable/pod" + uid},
		{"/kubepods", v1.PodQOSBestEffort, "/kubepods/besteffort/pod" + uid},
		{"/kubepods.slice", v1.PodQOSGuaranteed, "/kubepods.slice/kubepods-pod0a1b2c3d_1111_4222_8333_444455556666.slice"},
		{"/kubepods.slice", v1.PodQOSBurstable, "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_1111_4222_8333_444455556666.slice"},
		{"/n.slice/n-kubepods.slice", v1.PodQOSBestEffort, "/n.slice/n-kubepods.slice/n-kubepods-besteffort.slice/n-kubepods-besteffort-pod0a1b2c3d_1111_4222_8333_444455556666.slice"},
	} {
		if got := PodsAt(c.parent).Pod(uid, c.qos); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.parent, c.qos, got, c.want)
		}
	}
}

func TestPodsThatHaveAGroupAreListedWithTheirClassAndID(t *testing.T) {
	s := captured(t, "v2")
	pods, err := s.FindPods("/", "")
	if err != nil || pods.Path() != "/kubepods.slice" {
		t.Fatalf("got %q, %v", pods.Path(), err)
	}
	got, err := s.PodGroups(pods)
	require.NoError(t, err)
	want := []PodGroup{
		{ID: "99998888-7777-4666-8555-444433332222", QoS: v1.PodQOSGuaranteed},
		{ID: "0a1b2c3d-1111-4222-8333-444455556666", QoS: v1.PodQOSBurstable},
		{ID: "d41d8cd98f00b204e9800998ecf8427e", QoS: v1.PodQOSBestEffort},
	}
	for i := range want {
		want[i].Path = pods.Pod(want[i].ID, want[i].QoS)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	names, err := s.Children(want[1].Path)
	if err != nil || !slices.Equal(names, []string{"cri-containerd-aaaa.scope", "cri-containerd-bbbb.scope"}) {
		t.Errorf("containers: got %v, %v", names, err)
	}
	if _, err := s.FindPods("/", "workloads"); !errors.Is(err, ErrNoPods) {
		t.Errorf("a parent that does not exist: got %v", err)
	}
}

func TestPodsAreFoundInTheGroupThatHoldsThem(t *testing.T) {
	for want, dirs := range map[string][]string{
		"/kubepods":       {"kubepods", "kubepods.slice"},
		"/kubepods.slice": {"kubepods/besteffort", "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice"},
	} {
		host := t.TempDir()
		require.NoError(t, os.CopyFS(host, os.DirFS("testdata/v2")))
		s, err := Discover(host)
		require.NoError(t, err)
		for _, name := range []string{"kubepods", "kubepods.slice"} {
			require.NoError(t, os.RemoveAll(s.dir(memory, "/"+name)))
		}
		for _, dir := range dirs {
			require.NoError(t, os.MkdirAll(s.dir(memory, "/"+dir), 0o755))
		}
		if got, err := s.FindPods("/", ""); err != nil || got.Path() != want {
			t.Errorf("got %s, %v; want %s", got.Path(), err, want)
		}
	}
}

func put(t testing.TB, file, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o644))
}

func get(t testing.TB, file string) string {
	t.Helper()
	b := require.ReadFile(t, file)
	return string(b)
}

func amounts(n ...int64) []stats.Amount {
	known := make([]stats.Amount, len(n))
	for i := range n {
		known[i] = stats.Known(n[i])
	}
	return known
}
