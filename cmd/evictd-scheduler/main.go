// Command evictd-scheduler places pods, and says why they go where they go.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/evictd/evictd/scheduleradapter"
)

// version is stamped by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := scheduleradapter.Execute(ctx, scheduleradapter.NewCommand(version), os.Args[1:])
	stop()
	os.Exit(code)
}
