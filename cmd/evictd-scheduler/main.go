// Command evictd-scheduler places pods, and says why they go where they go.
package main

import (
	"context"
	"log/slog"
	"os"

	"k8s.io/klog/v2"

	"github.com/evictd/evictd/scheduleradapter"
)

// version is stamped by the linker.
var version = "unknown"

func main() {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))) // of client-go
	os.Exit(scheduleradapter.Execute(context.Background(), scheduleradapter.NewCommand(version), os.Args[1:]))
}
