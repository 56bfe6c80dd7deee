package framework

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// outOfTreePlugin counts the calls at the points that a what-if leaves out.
type outOfTreePlugin struct {
	fakePlugin
	calls []string
}

func (*outOfTreePlugin) Extends(point Point) bool { return point == PostFilter || point == Reserve }
func (*outOfTreePlugin) Hooks() CycleHooks        { return nil }

func (a *outOfTreePlugin) PostFilter(*Cycle) (Nomination, Status) {
	a.calls = append(a.calls, "PostFilter")
	return Nomination{}, Status{Code: Unschedulable}
}

func (a *outOfTreePlugin) Reserve(Assignment) Status {
	a.calls = append(a.calls, "Reserve")
	return Status{}
}

func (a *outOfTreePlugin) Unreserve(Assignment) { a.calls = append(a.calls, "Unreserve") }

// rule: S8.68
func TestAWhatIfDoesNotRunOutOfTreePluginsThatChangeState(t *testing.T) {
	foreign, own := &outOfTreePlugin{fakePlugin: fakePlugin{name: "foreign"}}, &fakePlugin{name: "own"}
	var plan Plan
	plan[QueueSort], plan[Bind] = []Enabled{{Plugin: own}}, []Enabled{{Plugin: own}}
	plan[PostFilter], plan[Reserve] = []Enabled{{Plugin: foreign}}, []Enabled{{Plugin: foreign}}
	r, err := New("p", &plan)
	require.NoError(t, err)
	if names := r.NotInWhatIf(); !slices.Equal(names, []string{"foreign"}) {
		t.Errorf("left out are %v", names)
	}
	for _, whatIf := range []bool{true, false} {
		foreign.calls = nil
		c := &Cycle{WhatIf: whatIf}
		if s := r.Begin(c, nodetable.New(), nodetable.NewPod(&v1.Pod{}), nil); !s.OK() {
			t.Fatal(s.Message())
		}
		r.PostFilter(c)
		a := Assignment{WhatIf: whatIf}
		if s := r.Reserve(a); !s.OK() {
			t.Fatal(s.Message())
		}
		r.Unreserve(a)
		if want := map[bool][]string{false: {"PostFilter", "Reserve", "Unreserve"}}[whatIf]; !slices.Equal(foreign.calls, want) {
			t.Errorf("what-if %v: calls are %v, want %v", whatIf, foreign.calls, want)
		}
	}
}
