package collect

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/evictd/evictd/stats"
)

// surveying runs a survey and returns a function that asks for a round and waits
// until it is complete.
func surveying(t *testing.T, log *bytes.Buffer, pods ...*PodDisk) (s *Survey, round func()) {
	t.Helper()
	s = NewSurvey(slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.Watch(pods)
	<-s.Done()
	return s, func() {
		s.Request()
		<-s.Done()
	}
}

// rule: 1.41
// rule: 1.45
func TestVolumesAndLogsAreSurveyedWhereTheKubeletKeepsThem(t *testing.T) {
	root, logs := t.TempDir(), t.TempDir()
	volume, logDir := EmptyDir(root, "u-1", "scratch"), LogDir(logs, "ns", "web", "u-1")
	if volume != root+"/pods/u-1/volumes/kubernetes.io~empty-dir/scratch" || logDir != logs+"/ns_web_u-1" {
		t.Fatalf("got %s and %s", volume, logDir)
	}
	put(t, volume+"/a", "data")
	put(t, logDir+"/app/0.log", "line\n")
	containers := []string{"app", "quiet"}
	p := NewPod(PodConfig{Containers: containers, Disk: NewPodDisk([]string{volume, "", root + "/missing"}, logDir, containers)})
	t.Cleanup(p.Close)
	var got stats.Pod
	if err := p.Read(&got); err != nil || len(got.Volumes) != 3 || got.Volumes[0] != (stats.Volume{}) {
		t.Fatalf("before the first survey: %v, %v", got.Volumes, err)
	}
	s, round := surveying(t, &bytes.Buffer{}, p.cfg.Disk)
	if err := p.Read(&got); err != nil {
		t.Fatal(err)
	}
	if got.Volumes[0].Inodes != stats.Known(2) || got.Volumes[1] != (stats.Volume{}) || got.Volumes[2] != (stats.Volume{}) {
		t.Errorf("volumes: got %v", got.Volumes)
	}
	if got.Containers[0].LogsInodes != stats.Known(2) || !got.Containers[0].Logs.IsKnown() || got.Containers[1].Logs.IsKnown() {
		t.Errorf("logs: got %v", got.Containers)
	}
	first := s.Since()
	put(t, volume+"/b", "data")
	round()
	if p.Read(&got); got.Volumes[0].Inodes != stats.Known(3) || !s.Since().After(first) {
		t.Errorf("after another round: got %v", got.Volumes[0])
	}
	if err := os.RemoveAll(volume); err != nil {
		t.Fatal(err)
	}
	round()
	if p.Read(&got); got.Volumes[0].Used.IsKnown() {
		t.Error("a directory that is gone is still known")
	}
}

func TestALongWalkIsToldWhole(t *testing.T) {
	dir := mounted(t, "size=64m,nr_inodes=0")
	const files = walkPerStep + 500
	for i := range files {
		if err := os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	disk := NewPodDisk([]string{dir}, "", nil)
	surveying(t, &bytes.Buffer{}, disk)
	if found := *disk.found.Load(); found[0].Inodes != stats.Known(files+1) {
		t.Errorf("got %v", found)
	}
}

func TestADirectoryThatCannotBeMeasuredIsToldOnce(t *testing.T) {
	file := t.TempDir() + "/file"
	put(t, file, "not a directory")
	var log bytes.Buffer
	_, round := surveying(t, &log, NewPodDisk([]string{file}, "", nil))
	round()
	if told := bytes.Count(log.Bytes(), []byte("cannot be measured")); told != 1 {
		t.Errorf("told %d times:\n%s", told, &log)
	}
}
