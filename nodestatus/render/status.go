package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/nodestatus"
)

// memory is the signal whose format amounts of memory have.
const memory = "memory.available"

// Status writes the status document as text.
func Status(out io.Writer, s *nodestatus.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "node %s, mode %s, %s\n", s.Node, s.Mode, s.Time.Format(time.RFC3339))
	conditions, taints, would := s.Conditions, s.Taints, ""
	if s.WouldBe != nil {
		fmt.Fprintln(w, "dry run: nothing is evicted, and neither conditions nor taints are written")
		conditions, taints, would = s.WouldBe.Conditions, s.WouldBe.Taints, "would be "
	}
	if s.Unprotected != "" {
		fmt.Fprintln(w, s.Unprotected)
	}
	if s.ConfigurationRefused != "" {
		fmt.Fprintln(w, "the configuration is refused, and the one before it is in use:", s.ConfigurationRefused)
	}
	fmt.Fprintln(w)
	fmt.Fprintln(w, "SIGNAL\tAVAILABLE\tCAPACITY\tTHRESHOLDS\tTIME LEFT")
	for _, signal := range s.Signals {
		var thresholds []string
		for _, t := range signal.Thresholds {
			text := t.Kind + " " + Short(signal.Name, t.Quantity)
			if t.Met {
				text += " MET"
			}
			thresholds = append(thresholds, text)
		}
		left := ""
		if signal.SecondsToThreshold != nil {
			left = (time.Duration(*signal.SecondsToThreshold * float64(time.Second)).Round(100 * time.Millisecond)).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", signal.Name, cmp.Or(Short(signal.Name, signal.Available), strings.TrimSuffix("not measured: "+signal.Unmeasured, ": ")), Short(signal.Name, signal.Capacity), strings.Join(thresholds, ", "), left)
	}
	for _, model := range slices.Sorted(maps.Keys(s.MemoryAvailable)) {
		fmt.Fprintf(w, "memory by model %s\t%s\n", model, Short(memory, s.MemoryAvailable[model]))
	}
	if s.Growing != nil {
		fmt.Fprintf(w, "growing fastest\t%s, by %s a second\n", s.Growing.Pod, Short(memory, s.Growing.PerSecond))
	}
	for i := range s.Outside {
		fmt.Fprintf(w, "%s\t%s; pods are evicted ten seconds apart\n", s.Outside[i].Condition, s.Outside[i].String())
	}
	showSteps(w, s.Steps)
	fmt.Fprintln(w)
	for _, c := range conditions {
		fmt.Fprintf(w, "%s%s=%s\t%s\tsince %s\n", would, c.Type, c.Status, c.Reason, c.LastTransitionTime.Format(time.RFC3339))
	}
	for _, taint := range taints {
		fmt.Fprintf(w, "%staint\t%s\n", would, taint)
	}
	if s.API != nil {
		showAPI(w, s.API)
	}
	if s.Runtime != nil {
		showRuntime(w, s.Runtime)
	}
	for _, signals := range ranked(s) {
		fmt.Fprintf(w, "\neviction order for %s\n", strings.Join(signals, ", "))
		Ranking(w, signals[0], s.Ranking[signals[0]])
	}
	showReclaimable(w, s)
	for _, k := range slices.Backward(s.KernelKills) {
		showKernelKill(w, &k)
	}
	for _, e := range slices.Backward(s.Evictions) {
		end := "still being killed"
		if !e.Gone.IsZero() {
			end = fmt.Sprintf("gone %v after the crossing, %s", e.Gone.Sub(e.Crossed.Time).Round(time.Millisecond), Gain(e.Signal, e.Freed, e.Held))
		}
		fmt.Fprintf(w, "\nevicted %s for %s at %s, %s\n  %s\n", e.Pod, e.Signal, e.Decided.Format(time.RFC3339), end, e.Message)
	}
	if s.WouldBe != nil {
		for _, e := range slices.Backward(s.WouldBe.Evictions) {
			fmt.Fprintf(w, "\nwould have evicted %s for %s at %s\n  %s\n", e.Pod, e.Signal, e.Decided.Format(time.RFC3339), e.Message)
		}
	}
	return w.Flush()
}

// showSteps writes the steps before evictions that are in effect.
func showSteps(w io.Writer, steps []nodestatus.StepInEffect) {
	for i := range steps {
		s := &steps[i]
		fmt.Fprintf(w, "%s\t%s since %s", s.Step.Step, s.Of(), s.Since.Format(time.RFC3339))
		if !s.Last.Equal(s.Since.Time) {
			fmt.Fprintf(w, ", last at %s", s.Last.Format(time.RFC3339))
		}
		if s.Cause != "" {
			fmt.Fprintf(w, ", for %s", s.Cause)
		}
		fmt.Fprintln(w)
	}
}

// ranked are the signals with pods, those with the same order and figures together.
func ranked(s *nodestatus.Status) (all [][]string) {
	for i := range s.Signals {
		name := s.Signals[i].Name
		same := slices.IndexFunc(all, func(names []string) bool { return slices.Equal(s.Ranking[names[0]], s.Ranking[name]) })
		switch {
		case len(s.Ranking[name]) == 0:
		case same >= 0:
			all[same] = append(all[same], name)
		default:
			all = append(all, []string{name})
		}
	}
	return all
}

// showKernelKill writes an OOM kill of the kernel, and the limit that caused it.
func showKernelKill(w io.Writer, k *nodestatus.KernelKill) {
	fmt.Fprintf(w, "\nkilled by the kernel in %s at %s, limit of %s", cmp.Or(k.Pod, k.Cgroup, "an unknown cgroup"), k.Time.Format(time.RFC3339), k.Limit)
	if k.PID != 0 {
		fmt.Fprintf(w, ": process %s, pid %d, %s resident", k.Process, k.PID, k.Memory)
	}
	if k.Processes > 1 {
		fmt.Fprintf(w, ", %d processes within a minute", k.Processes)
	}
	fmt.Fprintln(w)
}

// Ranking writes pods in eviction order for a signal.
func Ranking(w io.Writer, signal string, ranking []nodestatus.Ranked) {
	fmt.Fprintln(w, "#\tPOD\tCLASS\tPRIORITY\tUSAGE\tREQUEST\tWHY HERE")
	for i, r := range ranking {
		why := r.Because
		if r.Protected != "" {
			why = "never: " + r.Protected
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\n", i+1, r.Pod, r.QOSClass, r.Priority, cmp.Or(Short(signal, r.Usage), "unknown"), Short(signal, r.Request), why)
	}
}

// showReclaimable writes what a disk under pressure loses before a pod is evicted.
func showReclaimable(w io.Writer, s *nodestatus.Status) {
	for _, r := range s.Reclaiming {
		fmt.Fprintf(w, "\nfreeing the disk of %s by what is unused since %s\n", r.Signal, r.Since.Format(time.RFC3339))
	}
	if len(s.Reclaimable) > 0 {
		fmt.Fprintln(w, "\nunused, in the order in which a disk under pressure loses it")
		fmt.Fprintln(w, "#\tKIND\tNAME\tID\tWOULD FREE\tINODES\tWHY")
	}
	pods := podNames(s.Runtime)
	for i, r := range s.Reclaimable {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, r.Kind, nameOf(&r, pods), shortID(r.ID), cmp.Or(r.WouldFree, "unknown"), cmp.Or(r.WouldFreeInodes, "unknown"), r.Why)
	}
	if len(s.Unreclaimable) > 0 {
		fmt.Fprintln(w, "\nKEPT\tNAME\tID\tWHY")
	}
	for _, r := range s.Unreclaimable {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Kind, nameOf(&r, pods), shortID(r.ID), r.Why)
	}
}

func podNames(r *nodestatus.Runtime) map[types.UID]string {
	names := map[types.UID]string{}
	if r != nil {
		for i := range r.Pods {
			names[r.Pods[i].UID] = r.Pods[i].Pod
		}
	}
	return names
}

// nameOf is the name of a container or sandbox after that of its pod, or after the uid of
// one whose name is unknown.
func nameOf(r *nodestatus.Reclaimable, pods map[types.UID]string) string {
	if r.Pod == "" {
		return r.Name
	}
	return strings.TrimSpace(cmp.Or(pods[r.Pod], string(r.Pod)) + " " + r.Name)
}

// shortID is as much of an id as crictl shows.
func shortID(id string) string {
	id = id[strings.IndexByte(id, ':')+1:]
	return id[:min(13, len(id))]
}

func showRuntime(w io.Writer, r *nodestatus.Runtime) {
	state := r.Error
	if r.Connected {
		state = fmt.Sprintf("%s %s answers, %d sandboxes, %d containers, %d images", r.Name, r.Version, r.Sandboxes, r.Containers, r.Images)
	}
	fmt.Fprintf(w, "container runtime\t%s\n", state)
	if len(r.Missing) > 0 {
		fmt.Fprintf(w, "\tdoes not implement %s\n", strings.Join(r.Missing, ", "))
	}
	for _, method := range slices.Sorted(maps.Keys(r.Failing)) {
		fmt.Fprintf(w, "\tfails %s: %s\n", method, r.Failing[method])
	}
	if len(r.Pods) == 0 {
		return
	}
	fmt.Fprintln(w, "\nPOD\tCONTAINER\tSTATE\tMEMORY\tWRITABLE LAYER")
	for i := range r.Pods {
		name := r.Pods[i].Pod
		for _, c := range r.Pods[i].Containers {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, c.Name, c.State, c.Memory, c.Layer)
			name = ""
		}
	}
}

func showAPI(w io.Writer, api *nodestatus.API) {
	state := "answers"
	if !api.Connected {
		state = api.Error
	}
	fmt.Fprintf(w, "API server\t%s\n", state)
	if api.Untold > 0 {
		fmt.Fprintf(w, "\t%d evictions are not reported yet\n", api.Untold)
	}
	for _, what := range slices.Sorted(maps.Keys(api.Refused)) {
		fmt.Fprintf(w, "\tdoes not let evictd write %s\n", what)
	}
	if api.Conflict != "" {
		fmt.Fprintf(w, "\t%s\n", api.Conflict)
	}
}
