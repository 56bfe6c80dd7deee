package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/daemon"
	"github.com/evictd/evictd/eviction/undo"
)

func undoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "undo",
		Short: "Put back the kernel settings that an evictd changed for a kill and did not live to undo",
		Args:  cobra.NoArgs,
	}
	dir := c.Flags().String("runtime-dir", daemon.DefaultRuntimeDir, "of the evictd that has ended; one that runs keeps its own")
	c.RunE = func(c *cobra.Command, _ []string) error {
		undone, err := undo.Recover(*dir)
		for _, file := range undone {
			fmt.Fprintln(c.OutOrStdout(), "put back", file)
		}
		return err
	}
	return c
}
