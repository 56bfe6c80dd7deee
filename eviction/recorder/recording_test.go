package recorder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/stats"
)

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// recordedNode is a node that is recorded: it decides with the real core, as the loop
// does.
type recordedNode struct {
	t        *testing.T
	dir      string
	recorder *Recorder
	cfg      *eviction.Config
	state    eviction.State
	pods     []*v1.Pod
	memory   map[string]int64 // of each pod, MiB
	now      time.Time
	keeps    bool // the recorder keeps up with the passes
}

const hard = "memory.available"

func fly(t *testing.T, dir string, pods ...*v1.Pod) *recordedNode {
	t.Helper()
	file := config.EvictdConfiguration{EvictionHard: map[string]string{hard: "100Mi"}}
	compiled, err := config.Compile(&file, nil)
	require.NoError(t, err)
	cfg := eviction.New(compiled.Eviction, eviction.SharedFs)
	f := &recordedNode{t: t, dir: dir, cfg: &cfg, pods: pods, memory: map[string]int64{}, now: start, keeps: true}
	f.recorder = New(Config{
		Dir: dir, Version: "test", Node: simulate.FileNode{Name: "n"}, Eviction: file, Pods: func() []*v1.Pod { return f.pods },
	}, f, slog.New(slog.DiscardHandler))
	return f
}

// Snapshot makes it a recorder's Snapshots.
func (f *recordedNode) Snapshot(context.Context) (control.Snapshot, error) {
	return control.Snapshot{Candidates: f.candidates()}, nil
}

func (f *recordedNode) Recent(ctx context.Context) (control.Snapshot, error) { return f.Snapshot(ctx) }

func (f *recordedNode) candidates() []eviction.Candidate {
	var all []eviction.Candidate
	for _, pod := range f.pods {
		used := &stats.Pod{Memory: stats.Known(f.memory[pod.Name] << 20), Containers: []stats.Container{{Memory: stats.Known(f.memory[pod.Name] << 20)}}}
		all = append(all, eviction.Candidate{Pod: eviction.Digest(pod), Usage: used})
	}
	return all
}

// pass is one at so many seconds, with so much memory available, MiB.
func (f *recordedNode) pass(at int, kind eviction.Pass, available int64) {
	f.now = start.Add(time.Duration(at) * time.Second)
	in := eviction.Input{Now: f.now, Pass: kind, Candidates: f.candidates(), Sampled: true}
	in.Signals[eviction.MemoryAvailable] = eviction.Observation{Available: stats.Known(available << 20), Capacity: stats.Known(1 << 30), Time: f.now}
	state, d := eviction.Decide(f.cfg, f.state, in)
	d.Explain()
	f.state = state
	source := control.Housekeeping
	if kind == eviction.Event {
		source = control.Poll
	}
	f.recorder.Record(control.Report{
		At: f.now, Source: source, Pass: kind, Observations: in.Signals, State: state, Eviction: f.cfg, Decisions: []eviction.Decision{d},
		Candidates: in.Candidates, Sampled: true, DryRun: f.cfg.DryRun,
	})
	if f.keeps {
		f.keep()
	}
}

// gone ends the kill of a pod after so many milliseconds.
func (f *recordedNode) gone(name string, after int) {
	at := f.now.Add(time.Duration(after) * time.Millisecond)
	var uid types.UID
	f.pods = slices.DeleteFunc(slices.Clone(f.pods), func(p *v1.Pod) bool {
		if p.Name == name {
			uid = p.UID
		}
		return p.Name == name
	})
	f.state, _ = eviction.Decide(f.cfg, f.state, eviction.Input{Now: at, Pass: eviction.Continue, Outcomes: []eviction.Outcome{{UID: uid}}})
	f.recorder.Record(control.Report{At: at, Ended: &kill.Result{UID: uid, Signalled: f.now, Gone: at, Freed: stats.Known(300 << 20)}})
}

// keep writes what waits.
func (f *recordedNode) keep() {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.NoError(f.t, f.recorder.Run(ctx))
}

// land writes what was recorded and reads it back.
func (f *recordedNode) land() *Recording {
	f.t.Helper()
	f.keep()
	r, err := Read(f.dir)
	require.NoError(f.t, err)
	return r
}

func pod(name, uid string, request int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(uid)},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Env: []v1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}, Args: []string{"--token=hunter2"},
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(request<<20, resource.BinarySI)}},
		}}},
	}
}

// recordedLeak is the recording of most tests: a leak, its end, and a pod of the same name.
func recordedLeak(t *testing.T) (*recordedNode, *Recording) {
	f := fly(t, t.TempDir(), pod("calm", "1", 100), pod("leak", "2", 100))
	f.memory["calm"], f.memory["leak"] = 50, 100
	f.pass(0, eviction.Housekeeping, 800)
	f.memory["leak"] = 500
	f.pass(10, eviction.Housekeeping, 400)
	f.memory["leak"] = 850
	f.pass(15, eviction.Event, 50)
	f.gone("leak", 40)
	f.pods = append(f.pods, pod("leak", "3", 100))
	f.memory["leak"] = 20
	f.pass(20, eviction.Housekeeping, 880)
	return f, f.land()
}

func TestStoryHasTheReasonAndTheNextPod(t *testing.T) {
	_, r := recordedLeak(t)
	stories := r.Stories()
	if len(stories) != 1 {
		t.Fatalf("%d stories: %+v", len(stories), stories)
	}
	s := stories[0]
	got := fmt.Sprint(s.Pod, " ", s.UID, " ", s.Signal, " ", s.Kind, " ", s.Required, " ", s.Available, " next ", s.Next, " freed ", s.Freed, " after ", s.Gone.Sub(s.Decided.Time), " by ", s.Source)
	want := "default/leak 2 memory.available hard 100Mi 50Mi next default/calm freed 300Mi after 40ms by poll"
	if got != want || s.Message == "" || s.Because == "" || len(s.Ranking) != 2 {
		t.Errorf("got  %s\nwant %s\n%+v", got, want, s)
	}
	for _, name := range []string{"leak", "default/leak", "2"} {
		if len(About(stories, name)) != 1 {
			t.Errorf("nothing about %s", name)
		}
	}
	if len(About(stories, "3")) != 0 {
		t.Error("its namesake has no story")
	}
}

// replay simulates what was recorded around the last story.
func replay(t *testing.T, r *Recording, file *simulate.File) []simulate.Step {
	t.Helper()
	text, err := json.Marshal(file)
	require.NoError(t, err)
	scenario, err := simulate.Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return scenario.Run()
}

func evicted(steps []simulate.Step) string {
	var all []string
	for _, s := range steps {
		for _, e := range s.Evictions {
			all = append(all, s.At+" "+e.Pod)
		}
	}
	return strings.Join(all, ", ")
}

func TestRecordingPlaysAgainAsItWas(t *testing.T) {
	_, r := recordedLeak(t)
	s := r.Stories()[0]
	file := r.Scenario(&s)
	if got := evicted(replay(t, r, file)); got != "15s default/leak" {
		t.Errorf("under the same configuration: %s", got)
	}
	if takes := file.Spec.Steps[2].Kills["default/leak"].Takes.Duration; takes != 40*time.Millisecond {
		t.Errorf("the kill takes %v", takes)
	}
	file.Spec.Config.EvictionHard = map[string]string{hard: "500Mi"}
	// What was measured later is what was without that eviction.
	if got := evicted(replay(t, r, file)); !strings.HasPrefix(got, "10s default/leak") {
		t.Errorf("with a higher threshold: %s", got)
	}
	file.Spec.Config.EvictionHard = map[string]string{hard: "10Mi"}
	if got := evicted(replay(t, r, file)); got != "" {
		t.Errorf("with a lower threshold: %s", got)
	}
}

// TestRecordingOfTheVersionBeforePlays reads lines that it wrote, without most facts.
func TestRecordingOfTheVersionBeforePlays(t *testing.T) {
	r := parse([]journal.Segment{{
		Key: []byte(`{"begins":"2026-01-02T15:00:00Z","version":"old","scenario":{"metadata":{"name":""},"kind":"Scenario","apiVersion":"evictd.io/v1alpha1",
			"spec":{"config":{"evictionHard":{"memory.available":"100Mi"}},"node":{"name":"n"},"pods":[
			{"metadata":{"name":"calm","namespace":"default","uid":"1"},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}},
			{"metadata":{"name":"leak","namespace":"default","uid":"2"},"spec":{"containers":[{"name":"c","resources":{}}]},"status":{}}],"steps":null}}}`),
		Records: [][]byte{
			[]byte(`{"at":"2026-01-02T15:00:05Z","step":{"at":"5s","event":true,"signals":{"memory.available":{"available":"50Mi","capacity":"1Gi"}},
				"usage":{"default/calm":{"memory":"50Mi"},"default/leak":{"memory":"850Mi"}}},"source":"poll","evictions":[{"pod":"default/leak","uid":"2",
				"signal":"memory.available","hard":true,"crossed":"2026-01-02T15:00:05Z","gracePeriodSeconds":1,"grace":1000000000,"message":"","because":""}]}`),
			[]byte(`{"at":"2026-01-02T15:00:05.04Z","ended":{"uid":"2","signalled":"2026-01-02T15:00:05Z","gone":"2026-01-02T15:00:05.04Z"}}`),
			[]byte(`{"at":"2026-01-02T15:00:06Z","step":{"at":"6s","event":true,"signals":{"memory.available":{"available":"50Mi","capacity":"1Gi"}},
				"remove":["default/leak"]},"source":"victim-gone"}`),
		},
	}})
	file := r.Scenario(&r.Stories()[0])
	if got := evicted(replay(t, r, file)); got != "0s default/leak, 1s default/calm" {
		t.Errorf("evicted %s", got)
	}
}

func TestScenarioOfSeveralSegmentsIsWhole(t *testing.T) {
	f := fly(t, t.TempDir(), pod("calm", "1", 100), pod("leak", "2", 100), pod("ends", "4", 100))
	f.memory["calm"], f.memory["leak"] = 50, 100
	f.pass(0, eviction.Housekeeping, 800)
	f.pods = append(f.pods, pod("comes", "5", 100))
	f.pass(10, eviction.Housekeeping, 700)
	f.land()
	again := fly(t, f.dir, f.pods[0], f.pods[1], f.pods[3])
	again.memory = f.memory
	again.memory["leak"] = 850
	again.pass(20, eviction.Housekeeping, 50)
	again.gone("leak", 40)
	r := again.land()
	s := r.Stories()[0]
	file := r.Scenario(&s)
	if got := evicted(replay(t, r, file)); got != "20s default/leak" {
		t.Errorf("evicted %s", got)
	}
	var add, remove []string
	for _, step := range file.Spec.Steps {
		for i := range step.Add {
			add = append(add, step.Add[i].Name)
		}
		remove = append(remove, step.Remove...)
	}
	if !slices.Equal(add, []string{"comes"}) || !slices.Equal(remove, []string{"default/ends"}) {
		t.Errorf("added %v, removed %v", add, remove)
	}
}

func TestScenarioHoldsNothingFromBeforeAChangeOfTheConfiguration(t *testing.T) {
	f := fly(t, t.TempDir(), pod("leak", "2", 100))
	f.memory["leak"] = 100
	f.pass(0, eviction.Housekeeping, 800)
	f.recorder.Configure(config.EvictdConfiguration{EvictionHard: map[string]string{hard: "200Mi"}})
	f.keep()
	f.cfg = new(*f.cfg) // of the reports from now on
	f.pass(10, eviction.Housekeeping, 700)
	f.pass(20, eviction.Housekeeping, 50)
	r := f.land()
	s := r.Stories()[0]
	file := r.Scenario(&s)
	if len(file.Spec.Steps) != 2 || file.Spec.Config.EvictionHard[hard] != "200Mi" {
		t.Errorf("%d steps under %v", len(file.Spec.Steps), file.Spec.Config.EvictionHard)
	}
	if got := evicted(replay(t, r, file)); got != "10s default/leak" {
		t.Errorf("evicted %s", got)
	}
}

func TestScenarioHasNoStepsThatTheNodeCannotTake(t *testing.T) {
	f := fly(t, t.TempDir(), pod("leak", "2", 100))
	f.recorder.Configure(config.EvictdConfiguration{
		EvictionHard: map[string]string{hard: "100Mi"}, MemoryReclaimBudget: "64Mi", MemoryThrottlePeriod: metav1.Duration{Duration: time.Second},
		ResizeNamespaces: []string{"default"}, ContainerPressure: "restart",
	})
	f.memory["leak"] = 850
	f.pass(0, eviction.Event, 50)
	r := f.land()
	file := r.Scenario(&r.Stories()[0])
	if c := file.Spec.Config; c.MemoryReclaimBudget != "" || c.MemoryThrottlePeriod.Duration != 0 || c.ResizeNamespaces != nil || c.ContainerPressure != "" {
		t.Errorf("the configuration of the scenario is %+v", c)
	}
	if got := evicted(replay(t, r, file)); got != "0s default/leak" {
		t.Errorf("evicted %s", got)
	}
}

func TestSecretsOfPodsAreNotRecorded(t *testing.T) {
	f, _ := recordedLeak(t)
	paths, err := filepath.Glob(filepath.Join(f.dir, "*"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v, %v", paths, err)
	}
	for _, path := range paths {
		data := require.ReadFile(t, path)
		if strings.Contains(string(data), "hunter2") {
			t.Errorf("%s has an argument or variable of a container", path)
		}
	}
}

func TestRedactedPodIsRankedAndLimitedAsTheWholeOne(t *testing.T) {
	always, size, grace, priority := v1.ContainerRestartPolicyAlways, resource.MustParse("1Gi"), int64(7), int32(5)
	limits := v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceMemory: size}, Limits: v1.ResourceList{v1.ResourceEphemeralStorage: size, v1.ResourceMemory: size},
	}
	whole := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", Namespace: "default", UID: "u", Generation: 3, Annotations: map[string]string{"kubernetes.io/config.source": "file", "other": "x"},
			OwnerReferences: []metav1.OwnerReference{{UID: "owner", Controller: new(true)}},
		},
		Spec: v1.PodSpec{
			Priority: &priority, TerminationGracePeriodSeconds: &grace, Overhead: v1.ResourceList{v1.ResourceMemory: size},
			Resources:           &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: size}},
			InitContainers:      []v1.Container{{Name: "side", RestartPolicy: &always, Resources: limits}, {Name: "init", Resources: limits}},
			Containers:          []v1.Container{{Name: "c", Image: "x", Resources: limits}},
			EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
			Volumes: []v1.Volume{
				{Name: "dir", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &size}}},
				{Name: "ram", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
				{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/secret"}}},
				{Name: "map", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
				{Name: "claim", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
			},
		},
		Status: v1.PodStatus{Phase: v1.PodFailed},
	}
	kept := redacted(whole)
	if got, want := eviction.Digest(&kept), eviction.Digest(whole); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestRecorderWithoutADirectoryBlocksNothing(t *testing.T) {
	taken := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(taken, nil, 0o600))
	f := fly(t, taken, pod("a", "1", 1))
	f.keeps = false
	var log strings.Builder
	f.recorder.log = slog.New(slog.NewTextHandler(&log, nil))
	for i := range 2 * queue {
		f.pass(i, eviction.Housekeeping, 800)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = f.recorder.Run(ctx) })
	cancel()
	running.Wait()
	if f.recorder.lost.Load() != queue || strings.Count(log.String(), "cannot write") != 1 {
		t.Errorf("%d lost\n%s", f.recorder.lost.Load(), &log)
	}
	if _, err := Read(taken); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestReclaimsThatRunAndEndAreRecorded(t *testing.T) {
	s := step(&control.Report{At: start, Reclaims: []eviction.ReclaimOutcome{{For: eviction.NodeFsAvailable, Ended: true}, {For: eviction.ImageFsInodesFree}}}, start)
	if !slices.Equal(s.Reclaimed, []string{"nodefs.available"}) || !slices.Equal(s.Reclaiming, []string{"imagefs.inodesFree"}) {
		t.Errorf("ended %v, running %v", s.Reclaimed, s.Reclaiming)
	}
}

// TestFlushWaitsForWhatWasRecorded flushes while Run does not run, as if the disk hung, and while it does.
func TestFlushWaitsForWhatWasRecorded(t *testing.T) {
	f := fly(t, t.TempDir(), pod("leak", "2", 100))
	f.keeps, f.memory["leak"] = false, 850
	f.pass(0, eviction.Event, 50)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := f.recorder.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a recorder that runs: %v", err)
	}
	running, end := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { require.NoError(t, f.recorder.Run(running)) })
	require.NoError(t, f.recorder.Flush(t.Context()))
	r, err := Read(f.dir)
	require.NoError(t, err)
	if stories := r.Stories(); len(stories) != 1 || stories[0].Pod != "default/leak" {
		t.Errorf("stories %+v", stories)
	}
	end()
	done.Wait()
}
