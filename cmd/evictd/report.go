package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/eviction/recorder"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
)

func reportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "report",
		Short: "Compare the evictions by evictd, or those of its dry run, with those by the kubelet",
		Long: `List the evictions on this node: those that evictd has made, or would have made in
dry run, beside those that the API server shows of the kubelet. Evictions of the
same pod are compared, then those of different pods for the same resource within
five minutes. A pod is listed once for evictd, however often a dry run has decided
for it. The last 500 evictions are kept; the kubelet's times are exact to a second.`,
		Args: cobra.NoArgs,
	}
	output := cli.OutputFlag(c, "text", "json")
	stateDir := c.Flags().String("state-dir", "", "state directory of evictd (default that of the running evictd, or else "+daemon.DefaultStateDir+")")
	client := clientFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := client.Check(); err != nil {
			return err
		}
		if status, err := standing(c.Context(), client); err == nil {
			*stateDir = cmp.Or(*stateDir, status.StateDir)
			if status.Unprotected != "" {
				fmt.Fprintln(c.ErrOrStderr(), status.Unprotected)
			}
		}
		h, err := recorder.ReadEvictions(daemon.EvictionsDir(*stateDir))
		if err != nil {
			return err
		}
		if h.Since.IsZero() {
			return fmt.Errorf("no evictd has recorded evictions in %s; --state-dir names another state directory", cmp.Or(*stateDir, daemon.DefaultStateDir))
		}
		compared := recorder.Compare(h.Evictions)
		if output.String() == "json" {
			return serve.Encode(c.OutOrStdout(), map[string]any{"since": h.Since, "evictions": compared})
		}
		return writeReport(c.OutOrStdout(), h.Since.Time, compared)
	}
	return c
}

// writeReport writes a comparison for people.
func writeReport(out io.Writer, since time.Time, compared []recorder.Comparison) error {
	fmt.Fprintf(out, "Evictions since %s\n", since.Format(time.RFC3339))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(compared) > 0 {
		fmt.Fprintln(w, "\nSIGNAL\tEVICTD\tAT\tKUBELET\tAT\tDIFFERENCE")
	}
	var both, same, evictd, kubelet int
	for i := range compared {
		c := &compared[i]
		of := cmp.Or(c.Evictd, c.Kubelet)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", cmp.Or(of.Signal, of.Resource), podAt(c.Evictd), podAt(c.Kubelet), difference(c))
		switch {
		case c.Kubelet == nil:
			evictd++
		case c.Evictd == nil:
			kubelet++
		default:
			both++
			if c.Evictd.UID == c.Kubelet.UID {
				same++
			}
		}
	}
	fmt.Fprintf(w, "\nboth: %d, of which the same pod: %d; evictd only: %d; kubelet only: %d\n", both, same, evictd, kubelet)
	return w.Flush()
}

// podAt is which pod was evicted when, in two columns.
func podAt(e *recorder.Eviction) string {
	if e == nil {
		return "-\t-"
	}
	pod := e.Pod
	if e.DryRun {
		pod += " (dry run)"
	}
	return pod + "\t" + e.At.Format(time.RFC3339)
}

// difference is how two evictions differ, in words.
func difference(c *recorder.Comparison) string {
	switch {
	case c.Kubelet == nil:
		return "evictd only"
	case c.Evictd == nil:
		return "kubelet only"
	}
	text := "same time"
	if earlier := c.Earlier(); earlier > 0 {
		text = fmt.Sprintf("evictd %v earlier", earlier)
	} else if earlier < 0 {
		text = fmt.Sprintf("kubelet %v earlier", -earlier)
	}
	if c.Evictd.UID != c.Kubelet.UID {
		text += ", another pod"
	}
	return text
}
