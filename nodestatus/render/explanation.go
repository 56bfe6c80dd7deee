// Package render writes what evictd's status address says for people, as its
// commands and its live view show it. It fetches nothing.
package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/nodestatus"
)

// Explanation writes the document of /v1/explain for people; for one pod, with the
// changes that would change its rank.
func Explanation(out io.Writer, e *nodestatus.Explanation, one bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if e.Unprotected != "" {
		fmt.Fprintln(w, e.Unprotected+"\n")
	}
	for i := range e.Signals {
		s := &e.Signals[i]
		forecast(w, s, e.DryRun)
		for j := range s.Order {
			explainedPod(w, s.Signal, &s.Order[j], one)
		}
		fmt.Fprintln(w)
	}
	if len(e.Signals) == 0 {
		fmt.Fprintln(w, "no signal that has a threshold is measured")
	}
	showSteps(w, e.Steps)
	if len(e.Prospects) > 0 {
		fmt.Fprintln(w, "steps before an eviction")
	}
	for _, p := range e.Prospects {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", p.Step, p.Pod, map[bool]string{true: "taken", false: "not taken"}[p.May], p.Because)
	}
	if len(e.Limits) > 0 {
		fmt.Fprintln(w, "limits of pods: a pod over its limit is evicted whatever is available on the node")
		fmt.Fprintln(w, "  POD\tLIMIT\tHOLDS\tOF\tOVER")
	}
	for _, l := range e.Limits {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", l.Pod, strings.TrimSpace(l.Signal+" "+l.Of), l.Held, l.Limit, map[bool]string{true: "yes", false: "no"}[l.Over])
	}
	return w.Flush()
}

func forecast(w io.Writer, s *nodestatus.SignalForecast, dryRun bool) {
	is, beyond := "available", "below"
	if s.Signal == eviction.MemoryStall.String() {
		is, beyond = "of the time", "above"
	}
	fmt.Fprintf(w, "%s: %s %s, %s threshold %s", s.Signal, Short(s.Signal, s.Available), is, s.Kind, Short(s.Signal, s.Required))
	if s.Assumed {
		fmt.Fprintf(w, ", not met; %s it:\n", beyond)
	} else {
		fmt.Fprint(w, ", MET:\n")
	}
	if len(s.Reclaim) > 0 {
		fmt.Fprintf(w, "  unused %s are removed first; if that does not suffice:\n", strings.Join(s.Reclaim, " and "))
	}
	lacking := ""
	if s.Lacking != "1" && s.Lacking != "0" { // one unit is the assumed amount of a threshold that is not met, and zero is of memory.stall
		lacking = " where " + Short(s.Signal, s.Lacking) + " is lacking"
	}
	frees := "this frees " + cmp.Or(Short(s.Signal, s.Freed), "an unknown amount") + lacking
	switch {
	case len(s.Victims) > 0 && s.Suffices:
		fmt.Fprintf(w, "  evict %s; %s, which suffices\n", strings.Join(s.Victims, ", then "), frees)
	case len(s.Victims) > 0:
		fmt.Fprintf(w, "  evict %s; %s, which is not known to suffice\n", strings.Join(s.Victims, ", then "), frees)
	case len(s.Awaited) > 0 && dryRun:
		fmt.Fprintf(w, "  evict %s, which is not killed in a dry run; no further pod until it would be gone\n", strings.Join(s.Awaited, ", "))
	case len(s.Awaited) > 0:
		fmt.Fprintf(w, "  no further pod is evicted while %s is being killed\n", strings.Join(s.Awaited, ", "))
	default:
		fmt.Fprintf(w, "  no pod may be evicted%s\n", lacking)
	}
	if s.OneByOne && len(s.Victims) > 1 {
		fmt.Fprintln(w, "  one pod in a pass, the next one only if the threshold is still met")
	}
}

func explainedPod(w io.Writer, signal string, p *nodestatus.ExplainedPod, one bool) {
	result := "not evicted"
	switch {
	case p.Protected != "":
		result = "never evicted: " + p.Protected
	case p.Goes:
		result = "evicted"
	}
	fmt.Fprintf(w, "  %d. %s, %s, %s: uses %s, requests %s\n", p.Place, p.Pod, p.QOSClass, result, cmp.Or(Short(signal, p.Usage), "an unknown amount"), Short(signal, p.Request))
	for _, c := range p.Comparisons {
		decides := "equal"
		if c.Decides {
			decides = "decides"
		}
		fmt.Fprintf(w, "       before %s by %s\t%s\t%s\t%s\n", p.Against, c.Key, c.This, c.Other, decides)
	}
	if !one || p.Protected != "" {
		return
	}
	what := map[bool]string{true: "not evicted if ranked after", false: "evicted if ranked before"}[p.Goes]
	switch {
	case p.Rival == "":
		fmt.Fprintln(w, "       no change of the pod changes this")
	case len(p.Changes) == 0:
		fmt.Fprintf(w, "       %s %s, which no single change achieves\n", what, p.Rival)
	default:
		fmt.Fprintf(w, "       %s %s, by one of:\n", what, p.Rival)
	}
	for _, c := range p.Changes {
		fmt.Fprintf(w, "         %s\t%s\tinstead of %s\n", c.Of, bound(signal, c), figure(signal, c.Of, c.From))
	}
}

// bound is the value that a change must reach.
func bound(signal string, c nodestatus.Change) string {
	from, _ := resource.ParseQuantity(c.From)
	to, err := resource.ParseQuantity(c.To)
	if err == nil && to.Cmp(from) > 0 {
		return "at least " + figure(signal, c.Of, c.To)
	}
	return "at most " + figure(signal, c.Of, c.To)
}

// figure writes a value of a change.
func figure(signal, of, value string) string {
	if of == "priority" {
		return value
	}
	return Short(signal, value)
}
