// How many processors there are to use need not be looked at every second.
//
//go:debug updatemaxprocs=0

// Command evictd protects a Linux node from running out of memory, disk,
// inodes and process ids by evicting the right pod early.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
)

// version is stamped by the linker.
var version = "unknown"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	return cli.New("evictd", "Protects a node from running out of memory, disk, inodes and process ids", version,
		runCommand(), statusCommand(), explainCommand(), whyCommand(), reportCommand(), simulateCommand(), checkConfigCommand(), oomScoreCommand(), doctorCommand(), undoCommand())
}
