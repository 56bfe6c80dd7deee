// Package explain serves and prints why pods wait, and on which nodes a pod fits.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// Handler serves /v1/explain?pod=NAME; without a pod, the list of waiting pods. One question
// is answered at a time.
func Handler(l *cycle.Loop, log *slog.Logger) http.HandlerFunc {
	return serve.OneAtATime()(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Query().Get("pod")
		ctx, cancel := context.WithTimeout(r.Context(), serve.Timeout)
		defer cancel()
		document, found, err := answer(ctx, l, name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		if !found {
			http.Error(w, fmt.Sprintf("no pod %s of this scheduler's profiles", name), http.StatusNotFound)
			return
		}
		serve.Send(w, document, log)
	})
}

func answer(ctx context.Context, l *cycle.Loop, name string) (document any, found bool, err error) {
	if name != "" {
		return l.Explain(ctx, time.Now(), name)
	}
	document, err = cycle.Ask(ctx, l, func() any { return l.Pending(0) })
	return document, true, err
}

// NewCommand is `evictd-scheduler explain`, which reads the status address of the
// running scheduler.
func NewCommand(statusAddress string) *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [POD]",
		Short: "Explain on which nodes a pod fits, and why not on the others; without POD, list waiting pods",
		Long: `The running scheduler filters and scores all nodes for a pod with the plugins of its
profile, and changes nothing. The output has the scores of feasible nodes, and why
the other nodes are infeasible. POD is NAMESPACE/NAME, a name or a uid; a pod that has
a node is evaluated as if it had none. Without POD, the output lists the waiting pods,
since when they wait, and why.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	client := serve.ClientFlags(c.Flags(), "evictd-scheduler", statusAddress)
	nodes := c.Flags().Bool("nodes", false, "list all infeasible nodes")
	pending := func(ctx context.Context) (body []byte, waiting []cycle.PendingPod, err error) {
		if body, err = client.Fetch(ctx, "/v1/explain"); err == nil {
			err = serve.Decode(body, &waiting)
		}
		return body, waiting, err
	}
	c.ValidArgsFunction = func(c *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if _, waiting, err := pending(c.Context()); err == nil && len(args) == 0 {
			for i := range waiting {
				names = append(names, cobra.CompletionWithDesc(waiting[i].Pod, waiting[i].Place))
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			body, waiting, err := pending(c.Context())
			if err != nil || output.String() == "json" {
				_, failed := c.OutOrStdout().Write(body)
				return cmp.Or(err, failed)
			}
			return writePending(c.OutOrStdout(), waiting)
		}
		body, err := client.Fetch(c.Context(), "/v1/explain?"+url.Values{"pod": args}.Encode())
		if err != nil {
			return err
		}
		if output.String() == "json" {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var x cycle.Explanation
		if err := serve.Decode(body, &x); err != nil {
			return fmt.Errorf("read explanation: %w", err)
		}
		return writeExplanation(c.OutOrStdout(), &x, *nodes)
	}
	return c
}

func writePending(out io.Writer, waiting []cycle.PendingPod) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(waiting) == 0 {
		fmt.Fprintln(w, "no pod waits")
		return w.Flush()
	}
	fmt.Fprintln(w, "POD\tQUEUE\tSINCE\tATTEMPTS\tREASON")
	for i := range waiting {
		p := &waiting[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", p.Pod, p.Place, p.Since.UTC().Format(time.RFC3339), p.Attempts, reason(p))
	}
	return w.Flush()
}

func reason(p *cycle.PendingPod) string {
	switch {
	case p.Gate != "":
		return p.Gate
	case p.Nominated != "":
		return "waits for victims on " + p.Nominated
	case p.Message != "":
		return p.Message
	}
	return strings.Join(p.Rejectors, ", ")
}

func writeExplanation(out io.Writer, x *cycle.Explanation, names bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s fits %d of %d nodes\n", x.Pod, x.Feasible, x.Nodes)
	if x.Node != "" {
		fmt.Fprintf(w, "  it is on %s; the result is without it\n", x.Node)
	}
	if p := x.Waiting; p != nil {
		fmt.Fprintf(w, "  it waits since %s, %s after %d attempt%s", p.Since.UTC().Format(time.RFC3339), p.Place, p.Attempts, map[bool]string{false: "s"}[p.Attempts == 1])
		if why := reason(p); why != "" {
			fmt.Fprintf(w, ": %s", why)
		}
		fmt.Fprintln(w)
	}
	if g := x.Group; g != nil {
		fmt.Fprintf(w, "  it is scheduled with PodGroup %s%s: %d with a node, %d without; the nodes are those of this pod alone\n", g.Name, atLeast(g.MinCount), g.Placed, g.Waiting)
		if g.Message != "" {
			fmt.Fprintf(w, "  the last attempt of the PodGroup: %s\n", g.Message)
		}
	}
	if x.Refusal != "" {
		fmt.Fprintf(w, "  no node is evaluated: %s\n", x.Refusal)
	}
	writeBest(w, x.Best)
	if len(x.Refused) > 0 {
		fmt.Fprintln(w, "\nNODES\tREJECTED BY\tREASON\tPREEMPTION")
	}
	for i := range x.Refused {
		r := &x.Refused[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", r.Count, r.Plugin, strings.Join(r.Reasons, ", "), map[bool]string{true: "may help", false: "cannot help"}[r.Resolvable])
	}
	if len(x.Nearest) > 0 {
		fmt.Fprintln(w, "\nNEAREST NODES\tREASONS")
	}
	for i := range x.Nearest {
		n := &x.Nearest[i]
		fmt.Fprintf(w, "%s\t%s\n", n.Node, strings.Join(n.Reasons, ", "))
		for _, taint := range n.Taints {
			fmt.Fprintf(w, "\ttaint %s is not tolerated\n", taint)
		}
		for _, s := range n.Short {
			fmt.Fprintf(w, "\t%s: %s more than the free %s\n", s.Resource, s.Lacks, s.Free)
		}
		for _, detail := range n.Details {
			fmt.Fprintf(w, "\t%s\n", detail)
		}
	}
	for i := range x.Refused {
		if r := &x.Refused[i]; names && len(r.Nodes) > 0 {
			fmt.Fprintf(w, "\n%s, %s: %s\n", r.Plugin, strings.Join(r.Reasons, ", "), strings.Join(r.Nodes, " "))
		}
	}
	return w.Flush()
}

func atLeast(minCount int32) string {
	if minCount == 0 {
		return ""
	}
	return fmt.Sprintf(", %d pods together or none", minCount)
}

// writeBest writes the best nodes, with a column for each plugin with a score above
// zero.
func writeBest(w io.Writer, best []cycle.Scored) {
	given := map[string]bool{}
	for i := range best {
		for plugin, score := range best[i].Scores {
			given[plugin] = given[plugin] || score != 0
		}
	}
	maps.DeleteFunc(given, func(_ string, gives bool) bool { return !gives })
	plugins := slices.Sorted(maps.Keys(given))
	if len(best) > 0 {
		fmt.Fprintln(w, "\n"+strings.Join(append([]string{"BEST NODES", "TOTAL"}, plugins...), "\t"))
	}
	for i := range best {
		fmt.Fprintf(w, "%s\t%d", best[i].Node, best[i].Total)
		for _, plugin := range plugins {
			fmt.Fprintf(w, "\t%d", best[i].Scores[plugin])
		}
		fmt.Fprintln(w)
	}
}
