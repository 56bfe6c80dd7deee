package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	configdefaults "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// node is what an eviction manager works on, and implements what the manager calls. A pass begins
// when the manager asks for the active pods.
type node struct {
	*inputs
	*view
	*testclock.FakeClock
	record.EventRecorder // nil: the manager calls only the methods below
	manager              eviction.Manager
	at                   int // index of the present pass; -1 is before the first
	annotations          map[string]string
	answers              []answer
	over                 chan struct{}
}

// answers runs new managers through the passes of a view.
func (w *inputs) answers(v *view) ([]answer, error) {
	if v.Runs == 0 {
		return w.run(v)
	}
	var different []answer
	for range v.Runs {
		answers, err := w.run(v)
		if err != nil {
			return nil, err
		}
		last := answers[len(answers)-1]
		if !slices.ContainsFunc(different, func(a answer) bool { return reflect.DeepEqual(a, last) }) {
			different = append(different, last)
		}
	}
	return different, nil
}

// complete sets defaults: of the configuration as a kubelet does (cmd/kubelet/app), of pods as an
// API server does.
func (w *inputs) complete() {
	c := &w.Config
	configdefaults.SetDefaults_KubeletConfiguration(c)
	if c.EvictionHard == nil || *c.MergeDefaultEvictionSettings {
		hard := maps.Clone(eviction.DefaultEvictionHard)
		maps.Copy(hard, c.EvictionHard)
		c.EvictionHard = hard
	}
	for i := range w.Pods {
		w.Pods[i] = *defaulted(&w.Pods[i])
	}
}

// run runs a new manager.
func (w *inputs) run(v *view) ([]answer, error) {
	c := &w.Config
	thresholds, err := eviction.ParseThresholdConfig(c.EnforceNodeAllocatable, c.EvictionHard, c.EvictionSoft, c.EvictionSoftGracePeriod, c.EvictionMinimumReclaim)
	if err != nil {
		return nil, err
	}
	if v.Signals != nil {
		thresholds = slices.DeleteFunc(thresholds, func(t evictionapi.Threshold) bool { return !slices.Contains(v.Signals, string(t.Signal)) })
	}
	n := &node{
		inputs: w, view: v, FakeClock: testclock.NewFakeClock(time.Unix(0, 0)),
		at: -2, answers: make([]answer, v.Passes), over: make(chan struct{}),
	}
	if len(thresholds) == 0 && !*c.LocalStorageCapacityIsolation {
		return n.answers, nil // the manager asks for nothing
	}
	config := eviction.Config{
		Thresholds: thresholds, MaxPodGracePeriodSeconds: int64(c.EvictionMaxPodGracePeriod), PressureTransitionPeriod: c.EvictionPressureTransitionPeriod.Duration,
	}
	n.manager, _ = eviction.NewManager(n, config, n.kill, n, n, n, nil, n, *c.LocalStorageCapacityIsolation)
	n.manager.Start(klog.NewContext(context.Background(), logr.New(log{n})), n, n.activePods, func(*v1.Pod) bool { return true }, 0)
	<-n.over
	return n.answers, nil
}

// defaulted is a pod as an API server stores it, but for its grace period.
func defaulted(pod *v1.Pod) *v1.Pod {
	grace := pod.Spec.TerminationGracePeriodSeconds
	corev1.SetObjectDefaults_Pod(pod)
	var internal core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod, &internal, nil); err != nil {
		panic(err)
	}
	podutil.DefaultPodLevelResources(&internal)
	stored := &v1.Pod{}
	if err := corev1.Convert_core_Pod_To_v1_Pod(&internal, stored, nil); err != nil {
		panic(err)
	}
	stored.Spec.TerminationGracePeriodSeconds = grace
	return stored
}

// activePods ends a pass and begins the next. In the very first one nothing is measured: its
// thresholds of containerfs are not complete.
func (n *node) activePods() (pods []*v1.Pod) {
	if n.at >= 0 {
		a := &n.answers[n.at]
		for condition, raised := range map[v1.NodeConditionType]bool{
			v1.NodeMemoryPressure: n.manager.IsUnderMemoryPressure(),
			v1.NodeDiskPressure:   n.manager.IsUnderDiskPressure(),
			v1.NodePIDPressure:    n.manager.IsUnderPIDPressure(),
		} {
			if raised {
				a.Conditions = append(a.Conditions, string(condition))
			}
		}
		slices.Sort(a.Conditions)
		slices.SortFunc(a.Met, func(a, b threshold) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	if n.at++; n.at == len(n.answers) {
		close(n.over)
		runtime.Goexit()
	}
	if n.at < 0 {
		return nil
	}
	p, last := &n.inputs.Passes[n.at], n.at == len(n.answers)-1
	n.SetTime(p.At)
	for _, uid := range p.Active {
		pod := &n.Pods[slices.IndexFunc(n.Pods, func(pod v1.Pod) bool { return pod.UID == uid })]
		if last && slices.Contains(n.Hidden, uid) {
			continue
		}
		if last && n.NoStorageRequests {
			pod = withoutStorageRequests(pod)
		}
		pods = append(pods, pod)
	}
	return pods
}

func withoutStorageRequests(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			delete(containers[i].Resources.Requests, v1.ResourceEphemeralStorage)
		}
	}
	return pod
}

// Get is the summary, after what was removed.
func (n *node) Get(context.Context, bool) (*statsapi.Summary, error) {
	s := &statsapi.Summary{}
	if n.at < 0 {
		return s, nil
	}
	p := &n.inputs.Passes[n.at]
	s.Pods = p.Stats
	amount := func(n int64) *uint64 { u := uint64(max(0, n)); return &u }
	runtimeStats := &statsapi.RuntimeStats{ImageFs: &statsapi.FsStats{}, ContainerFs: &statsapi.FsStats{}}
	s.Node.Fs, s.Node.Runtime = &statsapi.FsStats{}, runtimeStats
	for name, m := range p.Signals {
		for _, step := range n.answers[n.at].Reclaimed {
			m.Available += p.Freed[step][name]
		}
		used := amount(m.Capacity - m.Available)
		memory := &statsapi.MemoryStats{Time: m.Time, AvailableBytes: amount(m.Available), WorkingSetBytes: used}
		fs := map[string]*statsapi.FsStats{"nodefs": s.Node.Fs, "imagefs": runtimeStats.ImageFs, "containerfs": runtimeStats.ContainerFs}
		switch fsName, kind, _ := strings.Cut(name, "."); {
		case evictionapi.Signal(name) == evictionapi.SignalMemoryAvailable:
			s.Node.Memory = memory
		case evictionapi.Signal(name) == evictionapi.SignalAllocatableMemoryAvailable:
			s.Node.SystemContainers = []statsapi.ContainerStats{{Name: statsapi.SystemContainerPods, Memory: memory}}
		case evictionapi.Signal(name) == evictionapi.SignalPIDAvailable:
			running := m.Capacity - m.Available
			s.Node.Rlimit = &statsapi.RlimitStats{Time: m.Time, MaxPID: &m.Capacity, NumOfRunningProcesses: &running}
		case kind == "available":
			f := fs[fsName]
			f.Time, f.AvailableBytes, f.CapacityBytes = m.Time, amount(m.Available), amount(m.Capacity)
		default:
			f := fs[fsName]
			f.Time, f.InodesFree, f.Inodes = m.Time, amount(m.Available), amount(m.Capacity)
		}
	}
	return s, nil
}

// GetCPUAndMemoryStats is not called by the manager.
func (n *node) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return nil, errors.ErrUnsupported
}

var errFails = errors.New("the pass says so")

func (n *node) remove(what string) error {
	a := &n.answers[n.at]
	a.Reclaimed = append(a.Reclaimed, what)
	if n.inputs.Passes[n.at].Freed[what] == nil {
		return errFails
	}
	return nil
}

// DeleteAllUnusedContainers implements eviction.ContainerGC.
func (n *node) DeleteAllUnusedContainers(context.Context) error { return n.remove("containers") }

// DeleteUnusedImages implements eviction.ImageGC.
func (n *node) DeleteUnusedImages(context.Context) error { return n.remove("images") }

// HasDedicatedImageFs and HasDedicatedContainerFs implement eviction.DiskInfoProvider.
func (n *node) HasDedicatedImageFs(context.Context) (bool, error) { return n.DedicatedImageFs, nil }

// HasDedicatedContainerFs says whether images and writable layers are on different filesystems.
func (n *node) HasDedicatedContainerFs(context.Context) (bool, error) { return n.SplitImageFs, nil }

// kill implements eviction.KillPodFunc.
func (n *node) kill(pod *v1.Pod, _ bool, grace *int64, change func(*v1.PodStatus)) error {
	status := &v1.PodStatus{}
	change(status)
	a := &n.answers[n.at]
	a.Evictions = append(a.Evictions, evicted{
		Pod: pod.Namespace + "/" + pod.Name, GracePeriodSeconds: *grace, Reason: status.Reason, Message: status.Message,
		DisruptionTarget: slices.ContainsFunc(status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet && c.Message == status.Message
		}),
		Annotations: n.annotations,
	})
	if slices.Contains(n.inputs.Passes[n.at].KillFails, pod.UID) {
		return errFails
	}
	return nil
}

// AnnotatedEventf implements record.EventRecorder: the event precedes the kill.
func (n *node) AnnotatedEventf(_ kruntime.Object, annotations map[string]string, _, _, _ string, _ ...any) {
	n.annotations = annotations
}

// Eventf implements record.EventRecorder.
func (n *node) Eventf(kruntime.Object, string, string, string, ...any) {}

// NewTimer has fired: the manager waits for no pod to be cleaned up.
func (n *node) NewTimer(time.Duration) clock.Timer { return clock.RealClock{}.NewTimer(0) }

// log takes the thresholds that act and the ranking from what the manager logs.
type log struct{ *node }

// Init implements logr.LogSink.
func (log) Init(logr.RuntimeInfo) {}

// Enabled implements logr.LogSink.
func (log) Enabled(level int) bool { return level <= 3 }

// Error implements logr.LogSink.
func (log) Error(error, string, ...any) {}

// WithValues implements logr.LogSink.
func (l log) WithValues(...any) logr.LogSink { return l }

// WithName implements logr.LogSink.
func (l log) WithName(string) logr.LogSink { return l }

// Info implements logr.LogSink.
func (l log) Info(_ int, message string, keysAndValues ...any) {
	if l.at < 0 {
		return
	}
	of := func(key string) any {
		if at := slices.Index(keysAndValues, any(key)); at >= 0 {
			return keysAndValues[at+1]
		}
		return nil
	}
	a := &l.answers[l.at]
	switch {
	case message == "Eviction manager: threshold observed resource" && of("log") == "thresholds - updated stats":
		a.Met = append(a.Met, threshold{fmt.Sprint(of("signal")), of("quantity").(*resource.Quantity).String(), of("available").(*resource.Quantity).String()})
	case message == "Eviction manager: pods ranked for eviction":
		a.Ranking = nil
		for _, ref := range of("pods").(logr.Marshaler).MarshalLog().([]any) {
			a.Ranking = append(a.Ranking, fmt.Sprint(ref))
		}
	}
}
