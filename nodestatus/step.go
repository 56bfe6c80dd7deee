package nodestatus

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
)

// Step is a step before evictions, on a container or a pod, or its end.
type Step struct {
	Step      string    `json:"step"`          // warn, reclaim, throttle, resize or restart
	Pod       string    `json:"pod,omitempty"` // namespace/name; empty where the memory of all pods is measured
	UID       types.UID `json:"uid,omitempty"`
	Container string    `json:"container,omitempty"`
	Over      bool      `json:"over,omitempty"`
	// Cause is the kind of the threshold, and its signal, or limit.
	Cause string `json:"cause,omitempty"`
	// Bytes are as of eviction.StepAction; of a step in effect as of eviction.StepTaken.
	Bytes   string `json:"bytes,omitempty"`
	Because string `json:"because,omitempty"`
}

// StepInEffect is a step in effect.
type StepInEffect struct {
	Step
	Since Time `json:"since"`
	Last  Time `json:"last"` // taken again
}

// NewStep converts a step.
func NewStep(s *eviction.StepAction) Step {
	step := Step{Step: s.Step.String(), Container: s.Container, Over: s.Over, Cause: s.Cause.String(), Bytes: bytes(s.Bytes), Because: s.Because}
	if s.Pod != nil {
		step.Pod, step.UID = s.Pod.String(), s.Pod.UID
	}
	return step
}

// NewStepInEffect converts a step in effect on a pod.
func NewStepInEffect(t *eviction.StepTaken, pod string) StepInEffect {
	return StepInEffect{
		Step:  Step{Step: t.Step.String(), Pod: pod, UID: t.UID, Container: t.Container, Cause: t.Cause.String(), Bytes: bytes(t.Bytes)},
		Since: Time{Time: t.Since}, Last: Time{Time: t.Last},
	}
}

// Prospect says whether a step may be taken on a pod, and when, or why not.
type Prospect struct {
	Step    string `json:"step"`
	Pod     string `json:"pod"` // namespace/name
	May     bool   `json:"may"`
	Because string `json:"because"`
}

func bytes(n int64) string {
	if n == 0 {
		return ""
	}
	return eviction.MemoryAvailable.Quantity(n)
}

// Text says for people which step it is, of what, and why: "end of reclaim, 64Mi of default/cache: BECAUSE".
func (s *Step) Text() string {
	var b strings.Builder
	if s.Over {
		b.WriteString("end of ")
	}
	b.WriteString(s.Step)
	b.WriteString(" " + s.Of() + ": " + s.Because)
	return b.String()
}

// Of says what the step is of: "container app of default/cache, 150Mi", or "default/cache, 64Mi".
func (s *Step) Of() string {
	if s.Pod == "" {
		return "no pod yet"
	}
	of := s.Pod
	if s.Container != "" {
		of = "container " + s.Container + " of " + s.Pod
	}
	switch {
	case s.Bytes != "":
		of += ", " + s.Bytes
	case s.Step == eviction.Resize.String() && !s.Over:
		of += ", not raised"
	}
	return of
}
