// Command evictd-scheduler is a Kubernetes scheduler that avoids node pressure.
package main

import (
	"context"
	"log/slog"
	"os"

	"k8s.io/klog/v2"

	"github.com/evictd/evictd/scheduleradapter"
)

// version is set by the linker.
var version = "unknown"

func main() {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))) // logs of client-go
	os.Exit(scheduleradapter.Execute(context.Background(), scheduleradapter.NewCommand(version), os.Args[1:]))
}
