// Command evictd-apiserver is the embedded API: Kubernetes' REST semantics for
// the programs of one host, with objects as YAML manifests in a directory.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/embeddedapi"
)

// version is stamped by the linker.
var version = "unknown"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	var (
		cfg       embeddedapi.Config
		addresses []string
		files     tlsFiles
	)
	c := cli.New("evictd-apiserver", "Serves Kubernetes' API to the programs of this host, from a directory of manifests", version)
	c.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cli.BadInput(fmt.Errorf("unexpected argument %q", args[0]))
		}
		return nil
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg.Log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
		return run(c.Context(), cfg, addresses, &files)
	}
	c.Flags().StringVar(&cfg.Data, "data", "/var/lib/evictd/api", "directory in which the objects live, a manifest each")
	c.Flags().StringArrayVar(&addresses, "listen", []string{"unix:/run/evictd/api.sock"}, "unix:PATH, 127.0.0.1:PORT or [::1]:PORT, with certificates any IP:PORT; repeatable")
	files.add(c.Flags())
	c.Flags().BoolVar(&cfg.Sync, "sync", false, "bring every change to the disk before it is acknowledged: it outlives a power failure, not only this process")
	return c
}
