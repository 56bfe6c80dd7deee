package collect

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

// surveying runs a survey and returns a function that asks for a round and waits
// until it is complete.
func surveying(t *testing.T, log *bytes.Buffer, pods ...*PodDisk) (s *DiskScanner, round func()) {
	t.Helper()
	s = NewDiskScanner(slog.New(slog.NewTextHandler(log, nil)))
	require.Running(t, s.Run)
	s.SetPods(pods)
	<-s.Done()
	return s, func() {
		s.Request()
		<-s.Done()
	}
}

// rule: 1.41
// rule: 1.44
// rule: 1.45
func TestWhatAPodWritesIsSurveyedWhereTheKubeletKeepsIt(t *testing.T) {
	root, logs := t.TempDir(), t.TempDir()
	volume, logDir := Volume(root, "u-1", EmptyDir, "scratch"), LogDir(logs, "ns", "web", "u-1")
	if volume.String() != root+"/pods/u-1/volumes/kubernetes.io~empty-dir/scratch" || logDir.String() != logs+"/ns_web_u-1" {
		t.Fatalf("got %s and %s", volume, logDir)
	}
	put(t, volume.String()+"/a", "data")
	put(t, logDir.String()+"/app/0.log", "line\n")
	put(t, logDir.String()+"/app/0.log.20261121-000000.gz", "line\n")
	put(t, logDir.String()+"/of-the-pod.log", "line\n")
	put(t, root+"/pods/u-1/etc-hosts", "127.0.0.1 localhost\n")
	containers := []string{"app", "quiet"}
	p := NewPod(PodConfig{Containers: containers, Disk: NewPodDisk(PodFiles{
		Root: root, Volumes: []PodPath{volume, {}, {root, "missing"}}, Logs: logDir, EtcHosts: EtcHosts(root, "u-1"), Containers: containers,
	})})
	t.Cleanup(p.Close)
	var got stats.Pod
	if err := p.Read(&got); err != nil || len(got.Volumes) != 3 || got.Volumes[0] != (stats.Volume{}) {
		t.Fatalf("before the first survey: %v, %v", got.Volumes, err)
	}
	begun := time.Now()
	s, round := surveying(t, &bytes.Buffer{}, p.cfg.Disk)
	require.NoError(t, p.Read(&got))
	if got.Volumes[0].Inodes != stats.Known(2) || got.Volumes[0].Time.Before(begun) || got.Volumes[1] != (stats.Volume{}) || got.Volumes[2] != (stats.Volume{}) {
		t.Errorf("volumes: got %v", got.Volumes)
	}
	if got.Containers[0].LogsInodes != stats.Known(3) || !got.Containers[0].Logs.IsKnown() || got.Containers[1].Logs.IsKnown() {
		t.Errorf("logs: got %v", got.Containers)
	}
	if got.Files.Inodes != stats.Known(2) || got.Files.Used.Or(0) == 0 {
		t.Errorf("the pod's own files: got %v", got.Files)
	}
	first := s.LastScan()
	put(t, volume.String()+"/b", "data")
	round()
	if p.Read(&got); got.Volumes[0].Inodes != stats.Known(3) || !s.LastScan().After(first) {
		t.Errorf("after another round: got %v", got.Volumes[0])
	}
	require.NoError(t, os.RemoveAll(volume.String()))
	round()
	if p.Read(&got); got.Volumes[0].Used.IsKnown() {
		t.Error("a directory that is gone is still known")
	}
}

// volumeOf is a pod with one volume.
func volumeOf(dir string) *PodDisk { return NewPodDisk(PodFiles{Volumes: []PodPath{placed(dir)}}) }

func TestALongWalkIsReadWhole(t *testing.T) {
	dir := mounted(t, "size=64m,nr_inodes=0")
	const files = walkPerStep + 500
	for i := range files {
		require.NoError(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644))
	}
	disk := volumeOf(dir)
	surveying(t, &bytes.Buffer{}, disk)
	if found := disk.found.Load().volumes; found[0].Inodes != stats.Known(files+1) {
		t.Errorf("got %v", found)
	}
}

func TestADirectoryThatCannotBeMeasuredIsLoggedOnce(t *testing.T) {
	file := t.TempDir() + "/file"
	put(t, file, "not a directory")
	var log bytes.Buffer
	_, round := surveying(t, &log, volumeOf(file))
	round()
	if logged := bytes.Count(log.Bytes(), []byte("cannot measure a directory")); logged != 1 {
		t.Errorf("logged %d times:\n%s", logged, &log)
	}
}

func TestAPodThatComesIsMeasuredAndTheOthersAreNotMeasuredAgain(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	a, b := volumeOf(first), volumeOf(second)
	s, _ := surveying(t, &bytes.Buffer{}, a)
	found, since := a.found.Load(), s.LastScan()
	s.SetPods([]*PodDisk{a, b})
	<-s.Done()
	if a.found.Load() != found || b.found.Load() == nil || s.LastScan() != since {
		t.Errorf("the first again: %t, the second: %v, since %v", a.found.Load() != found, b.found.Load(), s.LastScan().Sub(since))
	}
}

func TestADiskThatFillsUpMoreThanItsTreesIsSurveyedWhole(t *testing.T) {
	dir := mounted(t, "size=256m,nr_inodes=0")
	for i := range smallTree + 100 {
		put(t, fmt.Sprintf("%s/d%d/%d", dir, i%100, i), "x")
	}
	disk := volumeOf(dir)
	s := NewDiskScanner(slog.New(slog.DiscardHandler))
	s.SetPods([]*PodDisk{disk})
	whole := func() { s.scan(t.Context(), true, 0, everyPod) }
	if whole(); s.unexplained() {
		t.Error("at once")
	}
	old := time.Now().Add(-time.Hour)
	room := maxRemembered
	if _, err := disk.volumes[0].measure(time.Now().Add(time.Hour), true, &room, onward); err != nil || disk.volumes[0].root == nil {
		t.Fatal("nothing is remembered", err)
	}
	s.fullUsage = usageOf(*s.pods.Load())
	put(t, dir+"/d5/5", string(make([]byte, unexplainedBytes+1<<20)))
	_ = os.Chtimes(dir+"/d5/5", old, old)
	s.scan(t.Context(), false, 0, everyPod)
	if !s.unexplained() {
		t.Error("a file has grown without a change of its directory, and is not noticed")
	}
	if whole(); s.unexplained() || disk.found.Load().volumes[0].Used.Or(0) < unexplainedBytes {
		t.Errorf("after a whole round: %v", disk.found.Load().volumes)
	}
}

func TestARoundThatIsCutShortReportsNothing(t *testing.T) {
	disk := volumeOf(t.TempDir())
	s := NewDiskScanner(slog.New(slog.DiscardHandler))
	s.SetPods([]*PodDisk{disk})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s.scan(ctx, true, 0, everyPod); disk.found.Load() != nil || !s.LastScan().IsZero() {
		t.Error("it reports")
	}
}

func TestTheRuntimesFiguresTakePrecedenceOverTheScan(t *testing.T) {
	logs := t.TempDir()
	put(t, logs+"/a/0.log", "line\n")
	d := NewPodDisk(PodFiles{Logs: PodPath{"/nowhere", "p"}, Containers: []string{"a", "b"}})
	d.SetRuntimeFigures(RuntimeFigures{Layers: []stats.Volume{{}, {Used: stats.Known(4096), Inodes: stats.Known(7)}}, Logs: []PodPath{{logs, "a"}}})
	got := stats.Pod{Containers: make([]stats.Container, 2)}
	check := func(when string) {
		if d.read(&got); got.Containers[0].Rootfs.IsKnown() || got.Containers[1].Rootfs != stats.Known(4096) || got.Containers[1].RootfsInodes != stats.Known(7) {
			t.Errorf("%s: got %v", when, got.Containers)
		}
	}
	check("before the first survey")
	surveying(t, &bytes.Buffer{}, d)
	check("after it")
	if got.Containers[0].LogsInodes != stats.Known(2) || got.Containers[1].Logs.IsKnown() {
		t.Errorf("logs: got %v", got.Containers)
	}
}

func TestWhatIsKnownOfAPodsFilesHoldsWhileTheyAreWhereTheyWere(t *testing.T) {
	files := func() PodFiles {
		return PodFiles{Root: "/r", Volumes: []PodPath{{"/r", "v"}}, Logs: PodPath{"/l", "p"}, EtcHosts: PodPath{"/r", "e"}, Containers: []string{"c"}}
	}
	same := files()
	d := NewPodDisk(files())
	if !d.Matches(&same) {
		t.Error("the same files")
	}
	for name, change := range map[string]func(*PodFiles){
		"root": func(f *PodFiles) { f.Root = "/" }, "volumes": func(f *PodFiles) { f.Volumes = nil },
		"logs": func(f *PodFiles) { f.Logs = PodPath{} }, "etc-hosts": func(f *PodFiles) { f.EtcHosts.Below = "x" },
		"containers": func(f *PodFiles) { f.Containers[0] = "d" },
	} {
		other := files()
		if change(&other); d.Matches(&other) {
			t.Errorf("other %s", name)
		}
	}
}
