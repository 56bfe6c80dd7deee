// Command evictd-apiserver is the embedded API: Kubernetes' REST semantics for
// the programs of one host, with objects as YAML manifests in a directory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/localapi"
	"github.com/evictd/evictd/internal/manifest"
)

// version is stamped by the linker.
var version = "unknown"

// Exit codes: a fault that ended the program against its will, and bad flags.
const (
	exitFault    = 1
	exitBadInput = 2
)

// badInput marks an error as the caller's: exit code 2.
type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, out, errs io.Writer) int {
	c := command(errs)
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(errs)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for _, fault := range manifest.Faults(err) {
		fmt.Fprintf(errs, "evictd-apiserver: %v\n", fault)
	}
	if bad := (badInput{}); errors.As(err, &bad) {
		return exitBadInput
	}
	return exitFault
}

func command(logs io.Writer) *cobra.Command {
	var (
		cfg       localapi.Config
		addresses []string
	)
	c := &cobra.Command{
		Use:           "evictd-apiserver",
		Short:         "Serves Kubernetes' API to the programs of this host, from a directory of manifests",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badInput{fmt.Errorf("unexpected argument %q", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error {
			cfg.Log = slog.New(slog.NewTextHandler(logs, nil))
			return run(c.Context(), cfg, addresses)
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	c.Flags().StringVar(&cfg.Data, "data", "/var/lib/evictd/api", "directory in which the objects live, a manifest each")
	c.Flags().StringArrayVar(&addresses, "listen", []string{"unix:/run/evictd/api.sock"}, "unix:PATH, 127.0.0.1:PORT or [::1]:PORT; repeatable")
	c.Flags().BoolVar(&cfg.Sync, "sync", false, "bring every change to the disk before it is acknowledged: it outlives a power failure, not only this process")
	return c
}
