package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
)

// effective is what `check-config -o json` prints.
type effective struct {
	Thresholds []effectiveThreshold `json:"thresholds"`
	Warnings   []string             `json:"warnings"`
}

type effectiveThreshold struct {
	Signal      string `json:"signal"`
	Kind        string `json:"kind"`
	Value       string `json:"value"`
	GracePeriod string `json:"gracePeriod"`
	MinReclaim  string `json:"minReclaim"`
}

func checkConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "check-config FILE",
		Short: "Print the thresholds that a configuration comes to, or its faults",
		Long: `Print the thresholds that a configuration comes to on this host, with its warnings, or
each fault for which evictd run would end with exit code 2.`,
		Args: cobra.ExactArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	offline := c.Flags().Bool("offline", false, "the file is for another host: leave out what only this one can answer")
	force := c.Flags().Bool("force", false, "as for run: native mode although a kubelet runs here")
	flags := runFlags(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := cli.ReadInput(c, args[0])
		if err != nil {
			return err
		}
		file, compiled, err := flags.parse(args[0], text)
		if err != nil {
			return err
		}
		if !*offline {
			if err := daemon.CheckHost(daemon.Config{File: file, Force: *force, Version: version}); err != nil {
				return flags.name(args[0], err)
			}
		}
		e := describe(&compiled)
		if output.String() == "json" {
			return serve.Encode(c.OutOrStdout(), e)
		}
		table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "SIGNAL\tKIND\tVALUE\tGRACE\tMIN RECLAIM")
		for _, t := range e.Thresholds {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.Signal, t.Kind, t.Value, t.GracePeriod, t.MinReclaim)
		}
		for _, warning := range e.Warnings {
			fmt.Fprintf(table, "warning: %s\n", warning)
		}
		return table.Flush()
	}
	return c
}

// describe lists the thresholds by signal name, hard before soft. Those of
// containerfs are not among them: they follow from the disks of the node.
func describe(c *config.Config) effective {
	e := effective{Thresholds: []effectiveThreshold{}, Warnings: append([]string{}, c.Warnings...)}
	for i := range c.Eviction.Thresholds {
		t := &c.Eviction.Thresholds[i]
		if t.Signal == eviction.ContainerFsAvailable || t.Signal == eviction.ContainerFsInodesFree {
			continue
		}
		e.Thresholds = append(e.Thresholds, effectiveThreshold{
			Signal: t.Signal.String(), Kind: t.Kind(), Value: t.FormatValue(), GracePeriod: t.Grace.String(), MinReclaim: t.FormatMinReclaim(),
		})
	}
	slices.SortStableFunc(e.Thresholds, func(a, b effectiveThreshold) int {
		return cmp.Or(strings.Compare(a.Signal, b.Signal), strings.Compare(a.Kind, b.Kind))
	})
	return e
}
