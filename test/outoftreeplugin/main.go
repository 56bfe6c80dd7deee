// Command outoftreeplugin is an evictd-scheduler with plugins of somebody else's
// compiled in, written against k8s.io/kube-scheduler/framework. Its tests hold
// the scheduler to calling them at every extension point.
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

// command is evictd-scheduler with the plugins, which write into a notebook.
func command(notes *notebook) *cobra.Command {
	return scheduleradapter.NewCommand("outoftreeplugin",
		scheduleradapter.WithPlugin(everywhereName, newEverywhere(notes)),
		scheduleradapter.WithPlugin(countingName, newCounting(notes)),
		scheduleradapter.WithPlugin(roomName, newRoom(notes)),
		scheduleradapter.WithPlugin(handyName, newHandy(notes)),
	)
}
