package kubelet_test

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/evictd/evictd/eviction/simulate"
)

// row is an intended difference of docs/differences.md.
type row struct {
	rule string // of docs/behaviour.md
	line string // is in docs/differences.md
	// how the comparison allows for it: what the kubelet is asked instead, or how worlds are made
	// so that it does not show.
	how string
}

// The differences that the comparison finds and allows for, by asking the kubelet again.
var (
	hardBeforeSoft = &row{"M.1", "of hard and soft thresholds on one signal, either may act", "asked until it chooses the same"}
	sameResource   = &row{"M.2", "a reclaim counts as failed while a threshold of any resource is crossed", "asked with the thresholds of that resource only"}
	noStatistics   = &row{"M.4", "a pod without statistics is evicted first", "asked without that pod"}
	inodeRequests  = &row{"M.5", "inode counts are compared with a request in bytes", "asked with pods that request no storage"}
	holdsNothing   = &row{"M.6", "pods that hold nothing on the starved filesystem are evicted for it", "asked without that pod"}
	failedKill     = &row{"M.7", "a kill that fails or times out counts as an eviction", "asked without that pod"}
	fixedOrder     = &row{"M.10", "the order among disk and process signals is left to chance", "asked about each resource, in evictd's order"}
)

// rows are all differences that concern the comparison.
var rows = []*row{
	hardBeforeSoft, sameResource, noStatistics, inodeRequests, holdsNothing, failedKill, fixedOrder,
	{"M.3", "one statistic that fails ends the pass", "a statistic that fails is absent"},
	{"M.8", "a soft eviction blocks everything for as long as it takes", "every kill has ended, or failed, before the next pass"},
	{"M.9", "equal pods stand in any order", "pods are given in the order of their uid, and so few that the kubelet's sort leaves them there"},
	{"M.11", "two passes may run at once", "no notification runs a pass"},
	{"M.12", "the next pass waits 30 s at most for the victim", "every kill has ended, or failed, before the next pass"},
	{"M.166", "a pod without a process is evicted for the page cache that its cgroup holds", "each pod has a process, or it is not known"},
	{"M.185", "a threshold above the capacity is accepted, and evicts the node empty", "each capacity is above the thresholds"},
	{"M.65", "a pod reported as `Failed` is ranked no more", "no victim is reported before it has ended"},
	{"2.29", "`100.0%` and `NaN%` are live thresholds", "no threshold is one of these"},
	{"5.27", "a negative `evictionMaxPodGracePeriod` is accepted", "it is not negative"},
	{"", "Where a reclaim suffices, the kubelet ends its pass", "asked about each resource, in evictd's order"},
	{"", "of two hard thresholds on one filesystem signal only the", "a soft threshold of a disk has no grace of 0s where there is a hard one"},
	{"", "which has none at all in the very first pass", "a pass without statistics is the very first"},
	{"", "fractions of a byte are compared as such", "no amount has any"},
	{"", "a volume without a source is an emptyDir", "every volume has a source"},
	{"", "Amounts in messages are written as the status shows them", "amounts of a message are compared as numbers"},
}

// graceFloor of a victim, seconds, is added by the kubelet's pod workers, not by its eviction manager.
const graceFloor = 1

// layout is what a layout of the kubelet means.
type layout struct {
	containers, images []string          // filesystems where dead containers and unused images are removed
	disk               map[string]string // of each filesystem
	layers, files      []string          // filesystems that writable layers, and logs and volumes, count for
}

var layouts = map[string]layout{
	"shared": {
		containers: []string{"nodefs", "imagefs", "containerfs"}, images: []string{"nodefs", "imagefs", "containerfs"},
		disk:   map[string]string{"nodefs": "nodefs", "imagefs": "nodefs", "containerfs": "nodefs"},
		layers: []string{"nodefs", "imagefs", "containerfs"}, files: []string{"nodefs", "imagefs", "containerfs"},
	},
	"imagefs": {
		containers: []string{"imagefs", "containerfs"}, images: []string{"imagefs", "containerfs"},
		disk:   map[string]string{"nodefs": "nodefs", "imagefs": "imagefs", "containerfs": "imagefs"},
		layers: []string{"imagefs", "containerfs"}, files: []string{"nodefs"},
	},
	"split": {
		containers: []string{"nodefs", "containerfs"}, images: []string{"imagefs"},
		disk:   map[string]string{"nodefs": "nodefs", "imagefs": "imagefs", "containerfs": "nodefs"},
		layers: []string{"nodefs", "containerfs"}, files: []string{"nodefs", "containerfs"},
	},
}

// shortage names what a victim is evicted for: signals with the same shortage are relieved by the
// same victim.
func (l *layout) shortage(signal string) string {
	fs, kind, _ := strings.Cut(signal, ".")
	if disk := l.disk[fs]; disk != "" {
		return disk + "." + kind
	}
	if ofMemory(signal) {
		return "memory"
	}
	return signal
}

func ofMemory(signal string) bool { return strings.HasSuffix(signal, "emory.available") }

// runs is how often the kubelet is asked where it chooses at random among thresholds: more often
// where what is wanted was not among its answers.
var runs = []int{1, 30, 1000}

// counts are what comparisons have seen.
type counts struct {
	worlds, passes, victims int
	byRow                   map[*row]int
}

// comparison is of one scenario.
type comparison struct {
	manager *manager
	layout  layout
	inputs  *inputs
	steps   []simulate.Step
	used    []*row // by the present step
}

// difference is a step that differs, and the answers of evictd and of the kubelet.
type difference struct {
	step    int
	what    string
	evictd  simulate.Step
	kubelet answer
}

// compare runs a scenario, and returns its first difference, or nil. The error is of a scenario
// that is not valid.
func compare(m *manager, f *simulate.File, n *counts) (*difference, error) {
	s, err := simulate.Parse(encode(f))
	if err != nil {
		return nil, err
	}
	c := &comparison{manager: m, layout: layouts[cmp.Or(f.Spec.Node.Filesystems, "shared")], steps: s.Run()}
	if c.inputs, err = translate(f, c.steps); err != nil {
		return nil, err
	}
	for i, a := range m.ask(question{Inputs: c.inputs, view: view{Passes: len(c.steps)}}) {
		c.used = nil
		if what := c.step(i, a); what != "" {
			return &difference{i, what, c.steps[i], a}, nil
		}
		n.passes++
		n.victims += len(c.steps[i].Evictions)
		for _, r := range rows {
			if slices.Contains(c.used, r) {
				n.byRow[r]++
			}
		}
	}
	n.worlds++
	return nil, nil
}

// step says what differs in a step, or nothing. No later pass of the kubelet depends on the pods
// that it chose.
func (c *comparison) step(i int, a answer) string {
	s := &c.steps[i]
	if !slices.Equal(numbers(s.ThresholdsMet), numbers(a.Met)) {
		return "the thresholds that act"
	}
	for condition, raised := range s.Conditions {
		if raised != slices.Contains(a.Conditions, condition) {
			return condition
		}
	}
	if slices.Equal(a.Reclaimed, s.NodeReclaim) {
		if _, same := c.agrees(i, view{Runs: 1}, []answer{a}, s.Evictions); same {
			return ""
		}
	}
	if len(s.Evictions) > 0 && !s.Evictions[0].DisruptionTarget {
		return "the victims of their own limits"
	}
	c.used = nil
	return c.eachShortage(s, i)
}

// eachShortage compares what evictd does about each shortage, in its order, with what the kubelet
// does where no others have thresholds. Before the shortage that evictd evicts for, the
// kubelet evicts for none.
func (c *comparison) eachShortage(s *simulate.Step, i int) string {
	met := slices.Clone(s.ThresholdsMet)
	slices.SortFunc(met, func(a, b simulate.Threshold) int {
		order := func(t simulate.Threshold) int {
			at := slices.Index(signals, t.Signal)
			if t.Kind == "soft" && !ofMemory(t.Signal) {
				at += len(signals)
			}
			return at
		}
		return cmp.Compare(order(a), order(b))
	})
	var reclaimed, asked []string
	evictions := s.Evictions
	for _, t := range met {
		shortage := c.layout.shortage(t.Signal)
		if slices.Contains(asked, shortage) {
			continue
		}
		asked = append(asked, shortage)
		var want []simulate.Eviction
		if len(evictions) > 0 && c.layout.shortage(evictions[0].Signal) == shortage {
			want, evictions = evictions, nil
		}
		a, same := c.finds(i, shortage, met, want)
		if !same {
			return "what is done about " + shortage
		}
		for _, step := range a.Reclaimed {
			if !slices.Contains(reclaimed, step) {
				reclaimed = append(reclaimed, step)
			}
		}
		if want != nil {
			break
		}
	}
	switch {
	case len(evictions) > 0:
		return "the victim"
	case !slices.Equal(reclaimed, s.NodeReclaim):
		return "what the node removes"
	case len(c.used) > 0:
	case len(met) == 1:
		c.used = append(c.used, sameResource)
	case !slices.ContainsFunc(met, func(t simulate.Threshold) bool { return t.Signal != met[0].Signal }):
		c.used = append(c.used, hardBeforeSoft)
	default:
		c.used = append(c.used, fixedOrder)
	}
	return ""
}

// finds says whether the kubelet evicts what is wanted where only the signals of one shortage have
// thresholds. It chooses at random among those that act.
func (c *comparison) finds(i int, shortage string, met []simulate.Threshold, want []simulate.Eviction) (answer, bool) {
	inShortage := func(signal string) bool { return c.layout.shortage(signal) == shortage }
	v := view{}
	for _, signal := range signals {
		if inShortage(signal) {
			v.Signals = append(v.Signals, signal)
		}
	}
	acting := 0
	for _, t := range met {
		if inShortage(t.Signal) {
			acting++
		}
	}
	used := len(c.used)
	for _, v.Runs = range runsFor(acting) {
		if a, same := c.agrees(i, v, c.ask(i, v), want); same {
			return a, true
		}
		if strings.HasSuffix(shortage, ".inodesFree") {
			c.used = append(c.used[:used], inodeRequests)
			v.NoStorageRequests = true
			if a, same := c.agrees(i, v, c.ask(i, v), want); same {
				return a, true
			}
			v.NoStorageRequests = false
		}
		c.used = c.used[:used]
	}
	return answer{}, false
}

// runsFor is how often to ask where so many thresholds act.
func runsFor(acting int) []int {
	if acting > 1 {
		return runs
	}
	return runs[:1]
}

// ask returns the different answers of the kubelet about a pass.
func (c *comparison) ask(i int, v view) []answer {
	v.Passes = i + 1
	return c.manager.ask(question{view: v})
}

// agrees says whether the kubelet evicts what is wanted, in a view in which these are its answers. It
// is asked again without the pods that it chooses for an intended difference.
func (c *comparison) agrees(i int, v view, answers []answer, want []simulate.Eviction) (answer, bool) {
	s := &c.steps[i]
	for _, a := range answers {
		got := slices.DeleteFunc(slices.Clone(a.Evictions), func(e simulate.Eviction) bool { return slices.Contains(s.FailedKills, e.Pod) })
		var because *row
		switch {
		case len(got) < len(a.Evictions) && len(got) == 0:
			got, because = a.Evictions, failedKill
		case slices.EqualFunc(got, want, same) && (len(want) == 0 || !want[0].DisruptionTarget || c.sameRanking(i, a.Ranking)):
			if len(got) < len(a.Evictions) {
				c.used = append(c.used, failedKill)
			}
			return a, true
		case len(got) != 1 || !got[0].DisruptionTarget:
		case c.holdsNothing(i, got[0].Pod, v.Signals):
			because = holdsNothing
		case c.stats(i, got[0].Pod) == nil && (len(want) == 0 || c.stats(i, want[0].Pod) != nil):
			because = noStatistics
		}
		if because == nil {
			continue
		}
		less, used := v, len(c.used)
		c.used = append(c.used, because)
		less.Hidden = slices.Clone(v.Hidden)
		for _, e := range got {
			less.Hidden = append(less.Hidden, uid(e.Pod))
		}
		if a, same := c.agrees(i, less, c.ask(i, less), want); same {
			return a, true
		}
		c.used = c.used[:used]
	}
	return answer{}, false
}

// stats are the statistics of a pod, nil where it has none.
func (c *comparison) stats(i int, pod string) *statsapi.PodStats {
	all := c.inputs.Passes[i].Stats
	at := slices.IndexFunc(all, func(p statsapi.PodStats) bool { return p.PodRef.UID == string(uid(pod)) })
	if at < 0 {
		return nil
	}
	return &all[at]
}

// sameRanking says whether both rank the pods alike that have statistics and may be evicted.
func (c *comparison) sameRanking(i int, kubelet []string) bool {
	evictd := c.steps[i].Ranking
	common := func(ranking, other []string) []string {
		return slices.DeleteFunc(slices.Clone(ranking), func(pod string) bool { return !slices.Contains(other, pod) || c.stats(i, pod) == nil })
	}
	return slices.Equal(common(kubelet, evictd), common(evictd, kubelet))
}

// holdsNothing says whether a pod has nothing on the filesystem of signals that have the
// same shortage.
func (c *comparison) holdsNothing(i int, name string, signals []string) bool {
	if len(signals) == 0 || c.layout.disk[fsOf(signals[0])] == "" {
		return false
	}
	fs, inodes := fsOf(signals[0]), strings.HasSuffix(signals[0], ".inodesFree")
	layers, files := slices.Contains(c.layout.layers, fs), slices.Contains(c.layout.files, fs)
	p := c.stats(i, name)
	if p == nil || !layers && !files {
		return !layers && !files
	}
	holds := func(f *statsapi.FsStats) bool {
		n := f.UsedBytes
		if inodes {
			n = f.InodesUsed
		}
		return n != nil && *n > 0
	}
	for _, container := range p.Containers {
		if layers && holds(container.Rootfs) || files && holds(container.Logs) {
			return false
		}
	}
	at := slices.IndexFunc(c.inputs.Pods, func(pod v1.Pod) bool { return pod.UID == uid(name) })
	return !files || !slices.ContainsFunc(p.VolumeStats, func(stats statsapi.VolumeStats) bool {
		return holds(&stats.FsStats) && slices.ContainsFunc(c.inputs.Pods[at].Spec.Volumes, func(v v1.Volume) bool {
			local := v.HostPath != nil || v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
			return local && v.Name == stats.Name
		})
	})
}

func fsOf(signal string) string {
	fs, _, _ := strings.Cut(signal, ".")
	return fs
}

// same compares an eviction of the kubelet with one of evictd.
func same(kubelet, evictd simulate.Eviction) bool {
	return kubelet.Pod == evictd.Pod && kubelet.Reason == evictd.Reason && kubelet.DisruptionTarget == evictd.DisruptionTarget &&
		max(graceFloor, kubelet.GracePeriodSeconds) == evictd.GracePeriodSeconds &&
		inNumbers(kubelet.Message) == inNumbers(evictd.Message) && maps.Equal(kubelet.Annotations, evictd.Annotations)
}

var amounts = regexp.MustCompile(`quantity: (\S+), available: (\S+)\. `)

// inNumbers is a message with the amounts of a threshold as numbers.
func inNumbers(message string) string {
	return amounts.ReplaceAllStringFunc(message, func(found string) string {
		parts := amounts.FindStringSubmatch(found)
		return number(parts[1]) + " " + number(parts[2])
	})
}

// number is a quantity as a number.
func number(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return text
	}
	return fmt.Sprint(q.Value())
}

// numbers are thresholds, equal ones once: for the kubelet they may be the same.
func numbers(thresholds []simulate.Threshold) (texts []string) {
	for _, t := range thresholds {
		texts = append(texts, t.Signal+" "+number(t.Quantity)+" "+number(t.Available))
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}
