package scheduler_test

import (
	"bytes"
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
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/profile"
	"github.com/evictd/evictd/scheduleradapter/queue"
	"github.com/evictd/evictd/scheduleradapter/simulate"
)

// world is a cluster with pods to schedule.
type world struct {
	Config map[string]any `json:"config,omitempty"` // a KubeSchedulerConfiguration
	// PodGroups: GenericWorkload is on.
	PodGroups bool              `json:"podGroups,omitempty"`
	Items     []json.RawMessage `json:"items"`
}

func (w *world) text() []byte { return encode(w) }

// yaml are the manifests, with the configuration as a comment.
func (w *world) yaml() string {
	var out strings.Builder
	if w.Config != nil {
		text, err := yaml.Marshal(w.Config)
		if err != nil {
			panic(err)
		}
		for line := range strings.Lines(string(text)) {
			out.WriteString("# --config: " + line)
		}
	}
	for _, item := range w.Items {
		text, err := yaml.JSONToYAML(item)
		if err != nil {
			panic(err)
		}
		out.WriteString("---\n" + string(text))
	}
	return out.String()
}

func (w *world) config() (cfg config.Config, text string, err error) {
	known := profile.BuiltIn()
	gang := slices.IndexFunc(known, func(p config.Plugin) bool { return p.Name == framework.GangScheduling })
	known[gang].Default = w.PodGroups
	var file config.File
	if w.Config != nil {
		text = string(encode(w.Config))
		file, err = config.Load([]byte(text), "", known)
	}
	cfg, compiling := config.Compile(&file, known)
	return cfg, text, errors.Join(err, compiling)
}

// attempt of evictd-scheduler, with the objects of the cluster before it.
type attempt struct {
	At      string `json:"at"`
	Pod     string `json:"pod"`
	Profile string `json:"profile"`
	Result  string `json:"result"`
	Node    string `json:"node"`
	answer
	NominatedNode string `json:"nominatedNode"`

	objects     []json.RawMessage
	terminating []string
	nominations bool // pods are nominated
	hardSpread  bool // the pod has a DoNotSchedule constraint
	podGroup    *podGroupAttempt
	groupsRun   bool // pods of PodGroups have nodes
	images      bool // nodes have images
}

// mostAttempts are compared in a world: pods may preempt each other for long.
const mostAttempts = 40

var errEnough = errors.New("enough attempts")

// simulation runs `evictd-scheduler simulate` on a world.
type simulation struct {
	simulate.Reporter
	*simulate.Simulation
	out      bytes.Buffer
	attempts []attempt
	see      func(*attempt) bool // false ends the simulation
	stop     context.CancelCauseFunc
}

// Attempt decodes the line of an attempt.
func (s *simulation) Attempt(a *simulate.Attempt) {
	s.out.Reset()
	json := simulate.NewJSON(&s.out)
	json.Attempt(a)
	if err := json.End(simulate.Summary{}); err != nil {
		panic(err)
	}
	s.ended(a)
}

func (s *simulation) ended(a *simulate.Attempt) {
	if a.Outcome == cycle.Gated || len(s.attempts) == 0 {
		return
	}
	seen := &s.attempts[len(s.attempts)-1]
	if seen.podGroup != nil {
		seen.podGroup.ended(a)
		return
	}
	if err := json.NewDecoder(&s.out).Decode(seen); err != nil {
		panic(err)
	}
	seen.Failed, seen.Nominated = a.Outcome == cycle.Failed, seen.NominatedNode
	s.compared(seen)
}

func (s *simulation) compared(seen *attempt) {
	seen.Victims = slices.DeleteFunc(seen.Victims, func(name string) bool { return slices.Contains(seen.terminating, name) })
	slices.Sort(seen.Victims)
	if !s.see(seen) || len(s.attempts) == mostAttempts {
		s.stop(errEnough)
	}
}

func (s *simulation) Event(*simulate.Event)      {}
func (s *simulation) End(simulate.Summary) error { return nil }

func (s *simulation) attempting(e *queue.Entry) {
	s.podGroupEnded()
	var pod *nodetable.Pod
	if !e.IsPodGroup() {
		pod = e.Pod
	}
	now := s.Current(pod)
	for i, volume := range now.Volumes {
		if volume.Status.Phase == "" { // simulate takes it as available
			now.Volumes[i] = volume.DeepCopy()
			now.Volumes[i].Status.Phase = v1.VolumeAvailable
		}
	}
	now.PodGroups = withoutConditions(now.PodGroups)
	inOrderOf(e.Members, now.Pods)
	a := attempt{objects: manifests(now)}
	if pod == nil {
		a.podGroup = newPodGroupAttempt(e, now.Pods)
	}
	a.hardSpread = pod != nil && slices.ContainsFunc(pod.Object.Spec.TopologySpreadConstraints, func(c v1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable == v1.DoNotSchedule
	})
	a.images = slices.ContainsFunc(now.Nodes, func(n *v1.Node) bool { return len(n.Status.Images) > 0 })
	for _, pod := range now.Pods {
		a.groupsRun = a.groupsRun || pod.Spec.SchedulingGroup != nil && pod.Spec.NodeName != ""
		a.nominations = a.nominations || pod.Status.NominatedNodeName != ""
		if pod.DeletionTimestamp != nil {
			a.terminating = append(a.terminating, pod.Namespace+"/"+pod.Name)
		}
	}
	s.attempts = append(s.attempts, a)
}

// run simulates a world, and calls see after each attempt. The error is of a world that is
// not valid.
func (w *world) run(see func(*attempt) bool) (rejected error) {
	cfg, _, err := w.config()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "world.json")
	if err := os.WriteFile(file, encode(map[string]any{"apiVersion": "v1", "kind": "List", "items": w.Items}), 0o600); err != nil {
		panic(err)
	}
	objects, _, err := simulate.Load(os.ReadFile, file)
	if err != nil {
		return err
	}
	if err := checkPodGroups(objects); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	s := &simulation{see: see, stop: stop}
	end := 55 * time.Second // a minute ends nominations (S2.23)
	s.Simulation, err = simulate.New(objects, simulate.Config{
		Assemble: func(env framework.Env, stores profile.Stores) ([]cycle.Profile, error) {
			return profile.New(&cfg, env, stores, nil, slog.New(slog.DiscardHandler))
		},
		Attempting: s.attempting, InitialBackoff: cfg.PodInitialBackoff, MaxBackoff: cfg.PodMaxBackoff, For: &end,
		PodGroups: w.PodGroups, Random: w.random(),
	}, s)
	if err != nil {
		return err
	}
	err = s.Run(ctx)
	if err != nil && !errors.Is(err, errEnough) {
		panic(err)
	}
	if err == nil {
		s.podGroupEnded()
	}
	return nil
}

// unknown are the kinds that kube-scheduler does not watch.
var unknown = []string{"PriorityClass", "RuntimeClass", "Lease", "ResourceClaimTemplate"}

// manifests are the objects that kube-scheduler watches.
func manifests(objects *simulate.Objects) (texts []json.RawMessage) {
	value := reflect.ValueOf(*objects)
	for about, field := range value.Fields() {
		if !about.IsExported() {
			continue
		}
		for i := range field.Len() {
			object := field.Index(i).Interface().(runtime.Object)
			kinds, _, err := scheme.Scheme.ObjectKinds(object)
			if err != nil {
				panic(err)
			}
			if slices.Contains(unknown, kinds[0].Kind) {
				break
			}
			object.GetObjectKind().SetGroupVersionKind(kinds[0])
			texts = append(texts, encode(object))
		}
	}
	return texts
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", v, err))
	}
	return text
}
