package main

import (
	"errors"
	"fmt"
	"slices"

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
	result := c.Flags().String("service-result", "", "how evictd has ended, $SERVICE_RESULT of systemd.exec(5): after signal, core-dump and watchdog memory.high, and the restart bans of evicted pods, are left to the next evictd, once")
	c.RunE = func(c *cobra.Command, _ []string) error {
		undone, err := undo.Recover(*dir)
		ofKept := undo.Recover
		if slices.Contains([]string{"signal", "core-dump", "watchdog"}, *result) { // it is started again
			ofKept = undo.Defer
		}
		for _, kept := range daemon.KeptDirs(*dir) {
			more, err1 := ofKept(kept)
			undone, err = append(undone, more...), errors.Join(err, err1)
		}
		for _, file := range undone {
			fmt.Fprintln(c.OutOrStdout(), "put back", file)
		}
		return err
	}
	return c
}
