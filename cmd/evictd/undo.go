package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/daemon"
)

func undoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "undo",
		Short: "Put back the kernel settings that an evictd changed for a kill and did not live to undo",
		Args:  cobra.NoArgs,
	}
	dir := c.Flags().String("runtime-dir", daemon.DefaultRuntimeDir, "of the evictd that has ended; one that runs keeps its own")
	result := c.Flags().String("service-result", "", "how evictd has ended, $SERVICE_RESULT of systemd.exec(5): after signal, core-dump and watchdog memory.high and the restart bans of evicted pods are left to the next evictd, once; after success only the restart bans are left to it")
	c.RunE = func(c *cobra.Command, _ []string) error {
		undone, err := daemon.RecoverAfter(*dir, *result)
		for _, file := range undone {
			fmt.Fprintln(c.OutOrStdout(), "put back", file)
		}
		return err
	}
	return c
}
