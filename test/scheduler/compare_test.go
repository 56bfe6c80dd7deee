package scheduler_test

import (
	"maps"
	"reflect"
)

// row is an intended difference of docs/differences.md.
type row struct {
	rule string // of docs/behaviour.md
	line string // is in docs/differences.md
	// how the comparison allows for it: what kube-scheduler is asked instead, or how worlds are
	// made so that it does not show.
	how string
}

// rows are all differences that concern the comparison.
var rows = []*row{
	{"S2.23", "a pod waits for its victims as long as they take", "a world ends before a minute has passed"},
}

// counts are what comparisons have seen.
type counts struct {
	worlds, attempts, scheduled, victims int
	byRow                                map[*row]int
}

// difference is an attempt that differs.
type difference struct {
	what          string
	evictd        attempt
	kubeScheduler answer
}

// runs is how often kube-scheduler attempts a pod that preempts: it chooses at random among
// equal nodes.
var runs = []int{1, 20}

// compare returns the first difference in a world, or nil. The error is of a world that is not
// valid.
func compare(k *kubeScheduler, w *world, n *counts) (found *difference, err error) {
	_, config, _ := w.config()
	err = w.run(func(a *attempt) bool {
		found = k.differs(a, config)
		n.attempts++
		n.victims += len(a.Victims)
		if a.Node != "" {
			n.scheduled++
		}
		return found == nil
	})
	if err == nil && found == nil {
		n.worlds++
	}
	return found, err
}

func (k *kubeScheduler) differs(a *attempt, config string) (found *difference) {
	for _, runs := range runs {
		for _, b := range k.ask(question{config, a.objects, a.Pod, runs}) {
			what := differs(a, &b)
			if what == "" {
				return nil
			}
			found = &difference{what, *a, b}
		}
		if a.Nominated == "" && found.kubeScheduler.Nominated == "" {
			break
		}
	}
	return found
}

// differs says what of an attempt is different, or nothing.
func differs(a *attempt, b *answer) string {
	switch {
	case a.Failed != b.Failed:
		return "whether the attempt ends with an error"
	case a.Failed && a.Message != b.Message:
		return "the error"
	case a.Failed:
	case !equal(a.Feasible, b.Feasible):
		return "the nodes that fit"
	case !equal(a.Filtered, b.Filtered):
		return "the reasons of nodes"
	case !equal(withoutZeros(a.Scores), withoutZeros(b.Scores)):
		return "the scores"
	case len(a.Feasible) > 0:
	case a.Nominated != b.Nominated:
		return "the nominated node"
	case !equal(a.Victims, b.Victims):
		return "the victims"
	case a.Message != b.Message:
		return "the message"
	}
	return ""
}

func equal[T any](a, b T) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	return x.Len() == 0 && y.Len() == 0 || reflect.DeepEqual(a, b)
}

// withoutZeros has no scores of 0: kube-scheduler lists those of plugins that did not run.
func withoutZeros(all map[string]scores) map[string]scores {
	less := map[string]scores{}
	for node, s := range all {
		s.Plugins = maps.Clone(s.Plugins)
		maps.DeleteFunc(s.Plugins, func(_ string, score int64) bool { return score == 0 })
		less[node] = s
	}
	return less
}
