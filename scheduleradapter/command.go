package scheduleradapter

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
)

// NewCommand is the command line of evictd-scheduler, to be given to Execute.
func NewCommand(version string) *cobra.Command {
	return cli.New("evictd-scheduler", "Places pods by what nodes have room for, and says why", version, runCommand(), simulateCommand())
}

// Execute runs a command line until it ends, or SIGINT or SIGTERM ends its
// context. It writes every fault to the command's standard error and returns the
// exit code: 0, 1 or, for bad input, 2.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	return cli.Execute(ctx, root, args)
}
