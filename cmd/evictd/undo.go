package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/eviction/undo"
)

const defaultRuntimeDir = "/run/evictd"

// openChanges puts back what daemons that were killed left changed, and makes the
// log of this one.
func (d *daemon) openChanges() {
	undone, err := undo.Recover(d.runtimeDir)
	for _, file := range undone {
		d.log.Info("put back what an evictd before this one had changed", "file", file)
	}
	if err != nil {
		d.log.Warn("what an evictd before this one had changed could not be put back; evictd undo tries again", "error", err)
	}
	if d.changes, err = undo.Open(d.runtimeDir); err != nil {
		d.log.Warn("victims may be slow to die: what would give them the processor could not be undone if evictd were killed", "error", err)
	}
	d.tracker.changes = d.changes
}

func undoCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "undo",
		Short: "Put back the kernel settings that an evictd changed for a kill and did not live to undo",
		Args:  cobra.NoArgs,
	}
	dir := c.Flags().String("runtime-dir", defaultRuntimeDir, "of the evictd that has ended; one that runs keeps its own")
	c.RunE = func(c *cobra.Command, _ []string) error {
		undone, err := undo.Recover(*dir)
		for _, file := range undone {
			fmt.Fprintln(c.OutOrStdout(), "put back", file)
		}
		return err
	}
	return c
}
