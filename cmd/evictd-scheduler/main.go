// Command evictd-scheduler places pods, and says why they go where they go.
package main

import (
	"context"
	"os"

	"github.com/evictd/evictd/scheduleradapter"
)

// version is stamped by the linker.
var version = "unknown"

func main() {
	os.Exit(scheduleradapter.Execute(context.Background(), scheduleradapter.NewCommand(version), os.Args[1:]))
}
