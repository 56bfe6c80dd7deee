package recorder

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/simulate"
	"github.com/evictd/evictd/nodestatus"
)

// Story is one eviction, from the crossing to the end of the pod.
type Story struct {
	Pod     string    `json:"pod"` // namespace/name
	UID     types.UID `json:"uid"`
	Signal  string    `json:"signal"`
	Kind    string    `json:"kind"` // hard or soft
	DryRun  bool      `json:"dryRun,omitempty"`
	Version string    `json:"version"` // of the evictd that decided
	// Required and Available are the threshold and what was there.
	Required           string          `json:"required,omitempty"`
	Available          string          `json:"available,omitempty"`
	Crossed            nodestatus.Time `json:"crossed"`
	Decided            nodestatus.Time `json:"decided"`
	Signalled          nodestatus.Time `json:"signalled,omitzero"`
	Gone               nodestatus.Time `json:"gone,omitzero"`
	Freed              string          `json:"freed,omitempty"`
	Held               string          `json:"held,omitempty"` // of the disk; then Freed is empty
	GracePeriodSeconds int64           `json:"gracePeriodSeconds"`
	// Grace is the time from SIGTERM to SIGKILL.
	Grace   string          `json:"grace"`
	Killed  nodestatus.Time `json:"killed,omitzero"`
	Source  string          `json:"source"`
	Message string          `json:"message"`
	Because string          `json:"because"`
	// Error says why the kill could not begin, or how it failed.
	Error string `json:"error,omitempty"`
	// Next is the next eligible pod; empty without one.
	Next string `json:"next,omitempty"`
	// Ranking is the order of victims, as it was; the first ones of it.
	Ranking []nodestatus.Ranked `json:"ranking,omitempty"`
	// Steps are those on the pod before it was evicted, and where it was for memory those that reclaim from, or
	// throttle, others; oldest first.
	Steps []Taken `json:"steps,omitempty"`
}

// Recording is what was read of a ring.
type Recording struct {
	segments []segment
}

type segment struct {
	key     key
	records []record
}

// Read reads a recording. Records that cannot be decoded are left out.
func Read(dir string) (*Recording, error) {
	ring, err := journal.ReadRing(dir)
	if err != nil {
		return nil, fmt.Errorf("read flight recorder: %w", err)
	}
	return parse(ring), nil
}

func parse(ring []journal.Segment) *Recording {
	var all Recording
	for _, s := range ring {
		var parsed segment
		if json.Unmarshal(s.Key, &parsed.key) != nil {
			continue
		}
		for _, text := range s.Records {
			var r record
			if json.Unmarshal(text, &r) == nil {
				parsed.records = append(parsed.records, r)
			}
		}
		all.segments = append(all.segments, parsed)
	}
	return &all
}

// Stories are all evictions, oldest first.
func (r *Recording) Stories() []Story {
	var all []Story
	for i := range r.segments {
		for j := range r.segments[i].records {
			rec := &r.segments[i].records[j]
			for k := range rec.Evictions {
				all = append(all, story(&r.segments[i].key, rec, &rec.Evictions[k]))
			}
			if rec.Ended != nil {
				finish(all, rec.Ended)
			}
		}
	}
	addSteps(all, r.Steps())
	return all
}

func story(k *key, r *record, d *decided) Story {
	s := Story{
		Pod: d.Pod, UID: d.UID, Signal: d.Signal, Kind: kindOf(d.Hard), DryRun: r.DryRun, Version: k.Version,
		Required: d.Required, Available: d.Available, Crossed: nodestatus.Time{Time: d.Crossed}, Decided: nodestatus.Time{Time: r.At},
		GracePeriodSeconds: d.GracePeriodSeconds, Grace: d.Grace.Round(time.Millisecond).String(), Source: string(r.Source), Message: d.Message, Because: d.Because, Held: d.Held, Ranking: d.Ranking,
	}
	if d.Failed {
		s.Error = "the kill could not begin"
	}
	place := slices.IndexFunc(d.Ranking, func(r nodestatus.Ranked) bool { return r.UID == d.UID })
	for _, row := range d.Ranking[place+1:] {
		if row.Protected == "" {
			s.Next = row.Pod
			break
		}
	}
	return s
}

func kindOf(hard bool) string {
	if hard {
		return "hard"
	}
	return "soft"
}

// finish completes the last eviction of the pod with its end.
func finish(stories []Story, e *ended) {
	for i := range slices.Backward(stories) {
		s := &stories[i]
		if s.UID != e.UID {
			continue
		}
		s.Signalled, s.Gone = nodestatus.Time{Time: e.Signalled}, nodestatus.Time{Time: e.Gone}
		s.Killed = nodestatus.Time{Time: e.Killed}
		if s.Error = e.Error; s.Held == "" {
			s.Freed = e.Freed
		}
		return
	}
}

// About are the stories of a pod, by namespace/name, name alone or uid.
func About(stories []Story, pod string) []Story {
	return slices.DeleteFunc(slices.Clone(stories), func(s Story) bool { return !names(pod, s.Pod, s.UID) })
}

// names says whether a text is the namespace/name, the name or the uid of a pod.
func names(text, pod string, uid types.UID) bool {
	_, name, _ := strings.Cut(pod, "/")
	return text == pod || text == name || text == string(uid)
}

// What of the recording surrounds an eviction in its scenario.
const (
	leadIn  = 15 * time.Minute
	leadOut = time.Minute
)

// Scenario is the recording around an eviction for `evictd simulate`: under the same
// configuration it decides the same. It holds nothing from before a change of the
// configuration.
func (r *Recording) Scenario(s *Story) *simulate.File {
	from, to := s.Decided.Add(-leadIn), s.Decided.Add(leadOut)
	t := converter{from: from, pods: map[string]*v1.Pod{}, used: map[string]*simulate.FileUsage{}, kills: map[types.UID]killed{}}
	for i := range r.segments {
		seg := &r.segments[i]
		if seg.key.Begins.After(to) {
			break
		}
		t.open(&seg.key, s.Decided.Time)
		for j := range seg.records {
			if rec := &seg.records[j]; !rec.At.After(to) || rec.Ended != nil {
				t.take(rec, seg.key.Begins)
			}
		}
	}
	t.out.Metadata.Name = strings.ReplaceAll(s.Pod, "/", "-") + "-" + s.Decided.UTC().Format("20060102-150405")
	t.close()
	return &t.out
}

// converter makes one scenario of many records. It follows the pods from the first
// record on, and writes steps from an instant on.
type converter struct {
	out    simulate.File
	from   time.Time
	begins time.Time // of the scenario; zero before it has begun
	last   time.Time
	pods   map[string]*v1.Pod
	used   map[string]*simulate.FileUsage
	kills  map[types.UID]killed
	// Pods that changed between two segments, for the next step.
	add    []v1.Pod
	remove []string
}

// killed is where in the scenario a kill was decided.
type killed struct {
	pod  string
	step int
	at   time.Time
	over bool
}

// open starts a segment with its key.
func (t *converter) open(k *key, decided time.Time) {
	configured := func(f *simulate.File) string {
		text, _ := json.Marshal([]any{f.Spec.Config, f.Spec.Daemon}) // was read from JSON
		return string(text)
	}
	if !t.begins.IsZero() && configured(&t.out) != configured(&k.Scenario) && !k.Begins.After(decided) {
		*t = converter{from: t.from, kills: map[types.UID]killed{}} // another configuration
	}
	if t.begins.IsZero() {
		t.out = k.Scenario
	}
	pods := map[string]*v1.Pod{}
	for i := range k.Scenario.Spec.Pods {
		pod := &k.Scenario.Spec.Pods[i]
		pods[pod.Namespace+"/"+pod.Name] = pod
	}
	if t.begins.IsZero() {
		t.pods, t.used = pods, map[string]*simulate.FileUsage{}
		return
	}
	t.add, t.remove = changes(t.pods, pods)
}

// take adds a record of a segment that begins at an instant.
func (t *converter) take(r *record, begins time.Time) {
	if r.Ended != nil {
		t.end(r.Ended)
	}
	if r.Step == nil {
		return
	}
	step, at := *r.Step, begins.Add(r.Step.At.Duration) // r.At is of the wall clock, which may be set
	step.Kills, step.Add, step.Remove = maps.Clone(step.Kills), slices.Concat(t.add, step.Add), slices.Concat(t.remove, step.Remove)
	t.add, t.remove = nil, nil
	removed := slices.Clone(step.Remove)
	// A victim is removed by its kill, unless its end is reported.
	step.Remove = slices.DeleteFunc(step.Remove, func(name string) bool {
		pod := t.pods[name]
		if pod == nil {
			return false
		}
		k, killed := t.kills[pod.UID]
		return killed && !t.out.Spec.Steps[k.step].Kills[k.pod].Reported
	})
	for _, name := range removed {
		delete(t.pods, name)
		delete(t.used, name)
	}
	for i := range step.Add {
		pod := &step.Add[i]
		t.pods[pod.Namespace+"/"+pod.Name] = pod
	}
	step.Usage = map[string]*simulate.FileUsage{}
	for name, used := range r.Step.Usage {
		if _, known := t.pods[name]; known {
			step.Usage[name], t.used[name] = used, used
		}
	}
	if t.begins.IsZero() {
		if r.At.Before(t.from) {
			return
		}
		t.begins, t.out.Spec.Pods = at, nil
		for _, name := range slices.Sorted(maps.Keys(t.pods)) {
			t.out.Spec.Pods = append(t.out.Spec.Pods, *t.pods[name])
		}
		step.Add, step.Remove, step.Usage = nil, nil, maps.Clone(t.used)
	}
	for i := range r.Evictions {
		if e := &r.Evictions[i]; !e.Failed {
			t.kills[e.UID] = killed{pod: e.Pod, step: len(t.out.Spec.Steps), at: r.At}
		}
	}
	t.write(at, &step)
}

func (t *converter) write(at time.Time, step *simulate.FileStep) {
	step.At = metav1.Duration{Duration: max(0, at.Sub(t.begins))}
	if n := len(t.out.Spec.Steps); n > 0 { // the wall clock may have been set back
		step.At.Duration = max(step.At.Duration, t.out.Spec.Steps[n-1].At.Duration)
	}
	t.out.Spec.Steps = append(t.out.Spec.Steps, *step)
	t.last = at
}

// end sets in the step that decided a kill how long it took.
func (t *converter) end(e *ended) {
	k, known := t.kills[e.UID]
	if !known || k.over || e.Gone.IsZero() {
		return
	}
	k.over = true
	t.kills[e.UID] = k
	t.takes(&k, e.Gone.Sub(k.at))
}

// close has kills whose end was not recorded outlast the scenario.
func (t *converter) close() {
	for _, k := range t.kills {
		if !k.over {
			t.takes(&k, t.last.Sub(k.at)+time.Second)
		}
	}
}

func (t *converter) takes(k *killed, d time.Duration) {
	kills := &t.out.Spec.Steps[k.step].Kills
	kill := (*kills)[k.pod]
	kill.Takes.Duration = max(0, d)
	put(kills, k.pod, kill)
}
