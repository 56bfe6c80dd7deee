package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/serve"
	"github.com/evictd/evictd/nodestatus"
	"github.com/evictd/evictd/nodestatus/render"
)

func statusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Show signals against thresholds, conditions, and pods in eviction order",
		Args:  cobra.NoArgs,
	}
	output := cli.OutputFlag(c, "text", "json", "yaml")
	client := clientFlags(c)
	live := c.Flags().BoolP("watch", "w", false, "show it live, where standard output is a terminal")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *live && cli.Terminal(c.OutOrStdout()) {
			return becomeView(client)
		}
		body, err := client.Fetch(c.Context(), "/v1/status")
		if err == nil && output.String() == "yaml" {
			body, err = yaml.JSONToYAML(body)
		}
		if err != nil {
			return err
		}
		if output.String() != "text" {
			_, err := c.OutOrStdout().Write(body)
			return err
		}
		var status nodestatus.Status
		if err := serve.Decode(body, &status); err != nil {
			return fmt.Errorf("read status: %w", err)
		}
		return render.Status(c.OutOrStdout(), &status)
	}
	return c
}

// clientFlags say where the running daemon answers.
func clientFlags(c *cobra.Command) *serve.Client {
	return serve.ClientFlags(c.Flags(), "evictd", daemon.DefaultStatusAddress)
}
