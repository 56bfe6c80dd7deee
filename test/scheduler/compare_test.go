package scheduler_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// row is an intended difference of docs/differences.md.
type row struct {
	rule string // of docs/behaviour.md
	line string // is in docs/differences.md
	// how the comparison allows for it: what kube-scheduler is asked instead, or how worlds are
	// made so that it does not show.
	how string
}

// The differences that the comparison finds and allows for.
var (
	uncounted   = &row{"S2.33", "subtracts a terminating pod", "the results of preemption are not compared where a pod with such a constraint finds a terminating pod"}
	notFound    = &row{"S2.28", "PostFilter of `DynamicResources` fails with `not found`", "the message is compared up to that of PostFilter, and of a PodGroup nothing"}
	important   = &row{"S1.115", "is more important than a pod without", "victims of a pod without a PodGroup are not compared where pods of PodGroups run"}
	leftOut     = &row{"S2.39", "the plugin that rejected it among those that leave out other nodes", "a plugin that rejects a node may be among those that leave out others"}
	putBack     = &row{"S2.41", "has nothing to check without the victims", "a PodGroup for which kube-scheduler preempts 0 victims is not compared"}
	unscored    = &row{"S2.48", "scores no image", "a PodGroup that preempts is not compared where nodes have images"}
	shared      = &row{"S1.108", "share a claim that is not yet allocated", "a PodGroup is not compared where one of its pods waits for the claim of another"}
	firstError  = &row{"S2.49", "the error that occurs first", "only the plugin of the error of a filter is compared"}
	deallocated = &row{"S1.96", "only the pods nominated to it reject", "the deallocation is not compared where pods are nominated"}
)

// rows are all differences that concern the comparison.
var rows = []*row{
	notFound, uncounted, deallocated, important, leftOut, putBack, unscored, firstError, shared,
	{"S2.10", "does not protect pods without labels", "no budget of a world selects pods without labels"},
	{"S2.37", "count as those of pods of priority 0", "PodGroups have a priority above 0"},
	{"S1.113", "is a victim by the priority of the group", "pods that run have the priority of their PodGroup"},
	{"S2.29", "frees that port although the other pod uses it", "no two pods of a world have a host port of a node"},
	{"S2.30", "off in `multiPoint` and on in `score`", "a plugin that is on in `score`, and needs its PreScore, is on in `preScore`"},
	{"S2.32", "counts as used once", "no two pods that run use one"},
	{"S2.17", "a nominated node that a PreFilter plugin excludes", "no pod with a nominated node has volumes, or terms with matchFields"},
	{"S1.49", "matches an unbound in-tree volume by its own node affinity", "no unbound in-tree volume is of a migrated plugin"},
	{"S1.49", "whose zone its migrated plugin cannot translate", "no in-tree volume has such a zone"},
	{"S1.36", "a volume that only a VolumeAttachment attaches", "no pod uses such a volume where nodes limit volumes"},
	{"S1.35", "a pod of another namespace with a claim of the same name", "claims of all namespaces have different names"},
	{"S1.14", "a preferred node affinity whose selector does not parse", "only the required node affinity of a world has selectors that do not parse"},
	{"S2.23", "a pod waits for its victims as long as they take", "a world ends before a minute has passed"},
}

// counts are what comparisons have seen.
type counts struct {
	worlds, attempts, podGroups, scheduled, victims int
	byRow                                           map[*row]int
}

func (n *counts) String() string {
	return fmt.Sprintf("%d worlds, %d attempts, of them %d of PodGroups, %d pods scheduled, %d victims", n.worlds, n.attempts, n.podGroups, n.scheduled, n.victims)
}

// difference is an attempt that differs.
type difference struct {
	what          string
	evictd        attempt
	kubeScheduler answer
}

// runs is how often kube-scheduler attempts a pod that preempts or fails, or a PodGroup: it
// chooses at random among equal nodes, takes budgets in any order, and the error of a node ends
// the filters of the others.
var runs = []int{1, 20}

// compare returns the first difference in a world, or nil. The error is of a world that is not
// valid.
func compare(k *kubeScheduler, w *world, n *counts) (found *difference, err error) {
	_, config, _ := w.config()
	err = w.run(func(a *attempt) bool {
		found = k.differs(a, question{Config: config, Objects: a.objects, Pod: a.Pod, PodGroups: w.PodGroups}, n)
		n.attempts++
		n.victims += len(a.Victims)
		if a.Node != "" {
			n.scheduled++
		}
		if a.podGroup != nil {
			n.podGroups++
		}
		for _, end := range a.Pods {
			if end.Node != "" {
				n.scheduled++
			}
		}
		return found == nil
	})
	if err == nil && found == nil {
		n.worlds++
	}
	return found, err
}

func (k *kubeScheduler) differs(a *attempt, q question, n *counts) (found *difference) {
	if a.podGroup != nil {
		q.Pod, q.PodGroup = "", a.podGroup.name
	}
	for _, q.Runs = range runs {
		for _, b := range k.ask(q) {
			what, because := differs(a, &b)
			if what == "" {
				if because != nil {
					n.byRow[because]++
				}
				return nil
			}
			found = &difference{what, *a, b}
		}
		if a.podGroup == nil && a.Nominated == "" && found.kubeScheduler.Nominated == "" && !a.Failed {
			break
		}
	}
	return found
}

// differs says what of an attempt is different, or nothing, and for which row it is the same.
func differs(a *attempt, b *answer) (what string, because *row) {
	switch {
	case a.podGroup != nil:
		return a.podGroup.differs(a, b)
	case a.Failed != b.Failed:
		return "whether the attempt ends with an error", nil
	case a.Failed && a.Message == b.Message:
	case a.Failed && failedFilter.MatchString(a.Message) && failedFilter.FindString(a.Message) == failedFilter.FindString(b.Message):
		return "", firstError
	case a.Failed:
		return "the error", nil
	case !equal(a.Feasible, b.Feasible):
		return "the nodes that fit", nil
	case !equal(inOrder(a.Filtered), inOrder(b.Filtered)):
		return "the reasons of nodes", nil
	case !equal(withoutZeros(a.Scores), withoutZeros(b.Scores)):
		return "the scores", nil
	case len(a.Feasible) > 0:
	case a.hardSpread && len(a.terminating) > 0 && a.Message != b.Message:
		return "", uncounted
	case a.groupsRun && (a.Nominated != b.Nominated || !equal(a.Victims, b.Victims) || a.Message != b.Message):
		return "", important
	case a.Nominated != b.Nominated:
		return "the nominated node", nil
	case !equal(a.Victims, b.Victims):
		return "the victims", nil
	case a.Message == b.Message:
	case len(a.Filtered) == 0 && upToPostFilter(a.Message) == strings.TrimSuffix(b.Message, " not found"):
		return "", notFound
	case a.nominations && strings.Replace(a.Message, "deallocation of ResourceClaim completed, ", "", 1) == b.Message:
		return "", deallocated
	case a.listsRejecting(b.Message):
		return "", leftOut
	default:
		return "the message", nil
	}
	return "", nil
}

// failedFilter is the beginning of the error of a filter, with its plugin.
var failedFilter = regexp.MustCompile(`^running "[^"]*" filter plugin: `)

var listOfPlugins = regexp.MustCompile(`didn't satisfy plugin\(s\) \[([^]]*)\]`)

// listsRejecting reports whether a message is that of the attempt, with a plugin that rejects a
// node added to the list of those that leave out others.
func (a *attempt) listsRejecting(message string) bool {
	list := listOfPlugins.FindStringSubmatchIndex(a.Message)
	if list == nil {
		return false
	}
	for _, r := range a.Filtered {
		plugins := slices.Sorted(slices.Values(append(strings.Fields(a.Message[list[2]:list[3]]), r.Plugin)))
		if message == a.Message[:list[2]]+strings.Join(plugins, " ")+a.Message[list[3]:] {
			return true
		}
	}
	return false
}

// upToPostFilter is a message without what preemption adds.
func upToPostFilter(message string) string {
	before, _, _ := strings.Cut(message, " preemption: ")
	return before
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

// inOrder has sorted reasons: kube-scheduler lists extended resources in any order.
func inOrder(all map[string]rejection) map[string]rejection {
	sorted := map[string]rejection{}
	for node, r := range all {
		r.Reasons = slices.Sorted(slices.Values(r.Reasons))
		sorted[node] = r
	}
	return sorted
}
