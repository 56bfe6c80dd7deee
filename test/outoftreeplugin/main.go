// Command outoftreeplugin is an evictd-scheduler with out-of-tree plugins, written
// against k8s.io/kube-scheduler/framework. Its tests check the calls at every
// extension point.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/scheduleradapter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(scheduleradapter.Execute(ctx, command(&notebook{}), os.Args[1:]))
}

// command is evictd-scheduler with the plugins, which record their calls in a
// notebook.
func command(notes *notebook) *cobra.Command {
	return scheduleradapter.NewCommand("outoftreeplugin",
		scheduleradapter.WithPlugin(everywhereName, newEverywhere(notes)),
		scheduleradapter.WithPlugin(countingName, newCounting(notes)),
		scheduleradapter.WithPlugin(roomName, newRoom(notes)),
		scheduleradapter.WithPlugin(handyName, newHandy(notes)),
	)
}
