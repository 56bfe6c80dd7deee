package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/render"
)

func explainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "explain [POD]",
		Short: "Show which pods would be evicted for each signal if it acted now, and why",
		Long: `Show for each signal that is measured and has a threshold which pods would be
evicted if it acted now, what that frees and whether it suffices, and every
comparison that put each pod in its place. POD is NAMESPACE/NAME, a name or a uid:
then its place for each signal, what would change it, and the limits of its own.

The running evictd answers, by the code that decides.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := cli.OutputFlag(c, "text", "json")
	client := clientFlags(c)
	c.ValidArgsFunction = completePods(client)
	c.RunE = func(c *cobra.Command, args []string) error {
		pod := strings.Join(args, "")
		body, err := client.Fetch(c.Context(), "/v1/explain?"+url.Values{"pod": {pod}}.Encode())
		if err != nil {
			return err
		}
		if output.String() == "json" {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var e nodestatus.Explanation
		if err := serve.Decode(body, &e); err != nil {
			return fmt.Errorf("read explanation: %w", err)
		}
		return render.Explanation(c.OutOrStdout(), &e, pod != "")
	}
	return c
}

// completePods offers the pods that a running daemon ranks.
func completePods(client *serve.Client) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		body, err := client.Fetch(c.Context(), "/v1/explain")
		var e nodestatus.Explanation
		if err != nil || serve.Decode(body, &e) != nil || len(e.Signals) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, p := range e.Signals[0].Order {
			names = append(names, cobra.CompletionWithDesc(p.Pod, string(p.QOSClass)))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
