package whatif

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/scheduleradapter/cycle"
)

// NewCommand is `evictd-scheduler whatif`, which asks the running scheduler at its status
// address.
func NewCommand(statusAddress string) *cobra.Command {
	c := &cobra.Command{
		Use:   "whatif FILE",
		Short: "Ask whether further pods of workloads would get nodes, where, and which pods would be evicted",
		Long: fmt.Sprintf(`The running scheduler tries the pods of workloads one after another on the cluster as it is
now, with the plugins of their profile, and changes nothing. The output has the nodes of those
that fit, the pods that preemption would evict for others, and why the rest does not fit.
FILE, or standard input for -, has Pods, Deployments, ReplicaSets, StatefulSets, DaemonSets,
ReplicationControllers or Jobs as YAML or JSON, at most %d KiB, and PriorityClasses and
RuntimeClasses beside them if the pods need them. Waiting pods are not placed before, except
those that are nominated to a node. At most %d pods are tried, for at most %s, one question
at a time; the scheduler works on in between.`, MaxBody>>10, cycle.MaxWhatIf, cycle.WhatIfTime),
		Args: cobra.ExactArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	client := serve.ClientFlags(c.Flags(), "evictd-scheduler", statusAddress)
	count := c.Flags().Int("count", 0, fmt.Sprintf("pods of the only workload, 1 to %d (default its replicas, or 1)", cycle.MaxWhatIf))
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := cli.ReadInput(c, args[0])
		if err != nil {
			return err
		}
		if len(body) > MaxBody {
			return cli.BadInput(fmt.Errorf("%s: %d bytes: expected at most %d", args[0], len(body), MaxBody))
		}
		path := "/v1/whatif"
		if c.Flags().Changed("count") {
			path += "?" + url.Values{"count": {strconv.Itoa(*count)}}.Encode()
		}
		body, err = client.Post(c.Context(), path, body)
		if err != nil {
			return err
		}
		if output.String() == "json" {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var x cycle.WhatIf
		if err := serve.Decode(body, &x); err != nil {
			return fmt.Errorf("read answer: %w", err)
		}
		if err := write(c.OutOrStdout(), &x); err != nil {
			return err
		}
		for i := range x.Further {
			fmt.Fprintln(c.OutOrStdout())
			if err := write(c.OutOrStdout(), &x.Further[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

func write(out io.Writer, x *cycle.WhatIf) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s: %d of %d pods fit", x.Pod, x.Scheduled+x.Nominated, x.Count)
	if x.Nominated > 0 {
		fmt.Fprintf(w, ", %d of them after the eviction of %d pods%s", x.Nominated, x.Preempted, violates(x.Violations))
	}
	fmt.Fprintln(w)
	if x.Changed {
		fmt.Fprintln(w, "  the cluster changed while the pods were tried")
	}
	for _, what := range x.LeftOut {
		fmt.Fprintf(w, "  left out: %s\n", what)
	}
	if len(x.Nodes) > 0 {
		fmt.Fprintln(w, "\nNODE\tPODS\tAFTER EVICTION")
	}
	for _, n := range x.Nodes {
		fmt.Fprintf(w, "%s\t%d\t%d\n", n.Node, n.Scheduled, n.Nominated)
	}
	writeVictims(w, x.Pods)
	if x.Message != "" {
		fmt.Fprintf(w, "\n%s: %s\n", missing(x), x.Message)
	}
	if len(x.Filtered) > 0 {
		fmt.Fprintln(w, "\nNODES\tREJECTED BY\tREASON\tPREEMPTION")
	}
	for _, f := range x.Filtered {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", f.Nodes, f.Plugin, strings.Join(f.Reasons, ", "), map[bool]string{true: "may help", false: "cannot help"}[f.Resolvable])
	}
	return w.Flush()
}

func missing(x *cycle.WhatIf) string {
	if x.Untried > 0 {
		return fmt.Sprintf("%d of %d pods are not tried", x.Untried, x.Count)
	}
	return fmt.Sprintf("%d of %d pods do not fit", x.Unschedulable, x.Count)
}

// writeVictims writes the pods that have victims.
func writeVictims(w io.Writer, pods []cycle.WhatIfPod) {
	headed := false
	for _, p := range pods {
		if len(p.Victims) == 0 {
			continue
		}
		if !headed {
			fmt.Fprintln(w, "\nPOD\tNODE\tEVICTED")
			headed = true
		}
		fmt.Fprintf(w, "%d\t%s\t%s%s\n", p.Pod, p.Nominated, strings.Join(p.Victims, ", "), violates(p.Violations))
	}
}

func violates(violations int) string {
	if violations == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d against a disruption budget)", violations)
}
