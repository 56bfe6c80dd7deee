package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
)

// explain serves /v1/explain?pod=NAME.
func (d *daemon) explain(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), serve.Timeout)
	defer cancel()
	pod := r.URL.Query().Get("pod")
	e, found, err := d.publisher.Explain(ctx, pod)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case !found:
		http.Error(w, fmt.Sprintf("no pod %s runs on node %s", pod, e.Node), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		d.log.Debug("explanation not delivered", "error", err)
	}
}

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [POD]",
		Short: "Tell who would go for each signal if it acted now, and why",
		Long: `Tell for each signal that is measured and has a threshold who would go if it
acted now, what that frees and whether it suffices, and every comparison that put
each pod where it is. POD is NAMESPACE/NAME, a name or a uid: then its place for
each signal, what would make it go or stay, and the limits of its own.

The running evictd answers, by the code that decides.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	address := c.Flags().String("status-address", defaultStatusAddress, "of the running evictd: unix:PATH or IP:PORT")
	c.ValidArgsFunction = completePods(address)
	c.RunE = func(c *cobra.Command, args []string) error {
		pod := strings.Join(args, "")
		body, err := fetch(c.Context(), *address, "/v1/explain?"+url.Values{"pod": {pod}}.Encode())
		if err != nil {
			return err
		}
		if output.String() == "json" {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var e nodestatus.Explanation
		if err := json.Unmarshal(body, &e); err != nil {
			return fmt.Errorf("read explanation: %w", err)
		}
		return tellExplanation(c.OutOrStdout(), &e, pod != "")
	}
	return c
}

// completePods offers the pods that a running daemon ranks.
func completePods(address *string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		body, err := fetch(c.Context(), *address, "/v1/explain")
		var e nodestatus.Explanation
		if err != nil || json.Unmarshal(body, &e) != nil || len(e.Signals) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range e.Signals[0].Order {
			names = append(names, cobra.CompletionWithDesc(p.Pod, string(p.QOSClass)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// tellExplanation writes it for people; about one pod, what would change its place
// takes the place of how it compares to others.
func tellExplanation(out io.Writer, e *nodestatus.Explanation, one bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := range e.Signals {
		s := &e.Signals[i]
		tellForecast(w, s)
		for j := range s.Order {
			tellPlace(w, &s.Order[j], one)
		}
		fmt.Fprintln(w)
	}
	if len(e.Signals) == 0 {
		fmt.Fprintln(w, "no signal that has a threshold is measured")
	}
	if len(e.Limits) > 0 {
		fmt.Fprintln(w, "limits of its own for which a pod goes whatever the node has left")
		fmt.Fprintln(w, "  POD\tLIMIT\tHOLDS\tOF\tOVER")
	}
	for _, l := range e.Limits {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\n", l.Pod, strings.TrimSpace(l.Signal+" "+l.Of), l.Held, l.Limit, map[bool]string{true: "yes", false: "no"}[l.Over])
	}
	return w.Flush()
}

func tellForecast(w io.Writer, s *nodestatus.SignalForecast) {
	fmt.Fprintf(w, "%s: %s available, %s threshold %s", s.Signal, s.Available, s.Kind, s.Required)
	if s.Assumed {
		fmt.Fprint(w, ", not met; were it to fall below:\n")
	} else {
		fmt.Fprint(w, ", MET:\n")
	}
	if len(s.Reclaim) > 0 {
		fmt.Fprintf(w, "  first the node frees unused %s; if that gains nothing:\n", strings.Join(s.Reclaim, " and "))
	}
	frees := fmt.Sprintf("that frees %s where %s is lacking", orElse(s.Freed, "an unknown amount"), s.Lacking)
	switch {
	case len(s.Victims) > 0 && s.Suffices:
		fmt.Fprintf(w, "  %s would go; %s, which suffices\n", strings.Join(s.Victims, ", then "), frees)
	case len(s.Victims) > 0:
		fmt.Fprintf(w, "  %s would go; %s, which is not known to suffice\n", strings.Join(s.Victims, ", then "), frees)
	case len(s.Awaited) > 0:
		fmt.Fprintf(w, "  nobody else would go while %s is being ended\n", strings.Join(s.Awaited, ", "))
	default:
		fmt.Fprintf(w, "  nobody could go: %s is lacking and no pod may be evicted for it\n", s.Lacking)
	}
	if s.OneByOne && len(s.Victims) > 1 {
		fmt.Fprintln(w, "  one in a pass, and the next only if it is still needed then")
	}
}

func tellPlace(w io.Writer, p *nodestatus.Place, one bool) {
	verdict := "stays"
	switch {
	case p.Protected != "":
		verdict = "never goes: " + p.Protected
	case p.Goes:
		verdict = "goes"
	}
	fmt.Fprintf(w, "  %d. %s, %s, %s: uses %s, requests %s\n", p.Place, p.Pod, p.QOSClass, verdict, orElse(p.Usage, "an unknown amount"), p.Request)
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
	what := map[bool]string{true: "to stay it would have to come after", false: "to go it would have to come before"}[p.Goes]
	switch {
	case p.Rival == "":
		fmt.Fprintln(w, "       no change of its own would decide otherwise")
	case len(p.Changes) == 0:
		fmt.Fprintf(w, "       %s %s, which no single figure of its own changes\n", what, p.Rival)
	default:
		fmt.Fprintf(w, "       %s %s; any of these would do:\n", what, p.Rival)
	}
	for _, c := range p.Changes {
		fmt.Fprintf(w, "         %s\t%s\tinstead of %s\n", c.Of, bound(c), short(c.From))
	}
}

// bound is the value that a change has to come to.
func bound(c nodestatus.Change) string {
	from, _ := resource.ParseQuantity(c.From)
	to, err := resource.ParseQuantity(c.To)
	if err == nil && to.Cmp(from) > 0 {
		return "at least " + short(c.To)
	}
	return "at most " + short(c.To)
}
