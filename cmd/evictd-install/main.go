// Command evictd-install runs in a pod on each node: it installs evictd on the pod's host,
// keeps it up to date with the pod's image, configuration and token, and removes it again.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/install"
)

// version is stamped by the linker.
var version = "unknown"

const name = "evictd-install"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	return cli.New(name, "Installs evictd on the host of a pod, and removes it", version, runCommand(), uninstallCommand(), readyCommand(), enterCommand())
}

// stateFile is where run and uninstall leave what they see for ready.
func stateFile(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "state-file", "/run/evictd-install/state", "file with the state of evictd, which the command ready reads")
}

// hostFlags adds the flags that name the host.
func hostFlags(c *cobra.Command, cfg *install.Config) {
	c.Flags().StringVar(&cfg.Root, "root", "/host", "where the host's root directory is mounted")
	stateFile(c, &cfg.StateFile)
}

func logger(c *cobra.Command) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil)).With("program", name)
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "run", Short: "Install evictd, follow the files of the pod and the state of evictd", Args: cobra.NoArgs,
		Long: "Install evictd on the host, then keep it up to date with the files of this pod. With " + install.UninstallVariable +
			"=true in the environment, remove it and wait.",
	}
	cfg := install.Config{Version: version}
	hostFlags(c, &cfg)
	c.Flags().StringVar(&cfg.Prefix, "prefix", "/opt/evictd", "directory of the host that gets the programs, in bin")
	c.Flags().StringVar(&cfg.Image.Programs, "programs", "/usr/bin", "directory with the programs to install")
	c.Flags().StringVar(&cfg.Image.Share, "units", "/usr/share/evictd", "directory with the units to install")
	c.Flags().StringVar(&cfg.Image.Configuration, "config", "/etc/evictd/evictd.yaml", "file with the configuration of evictd")
	c.Flags().StringVar(&cfg.Image.Token, "token", "/var/run/secrets/evictd/token", "file with the token of evictd's agent")
	c.Flags().StringVar(&cfg.Image.CA, "ca", "/var/run/secrets/evictd/ca.crt", "file with the CA of the API server")
	c.Flags().StringVar(&cfg.Image.Server, "server", "", "URL of the API server, which the host reaches (default that of the pod)")
	c.Flags().StringVar(&cfg.Image.NodeName, "node-name", "", "the Node of this host (default $NODE_NAME)")
	c.Flags().DurationVar(&cfg.Interval, "interval", 5*time.Second, "how often the files and the state are compared")
	c.Flags().BoolVar(&cfg.InPod, "in-pod", false, "run evictd in this pod, which is privileged, where the host has no systemd")
	metrics := c.Flags().String("metrics-address", "", "address on which the metrics of the host's evictd are served; empty for none")
	c.RunE = func(c *cobra.Command, _ []string) error {
		cfg.Image.Server = cmp.Or(cfg.Image.Server, server())
		cfg.Image.NodeName = cmp.Or(cfg.Image.NodeName, os.Getenv("NODE_NAME"))
		if os.Getenv(install.UninstallVariable) == "true" {
			err := install.New(cfg, logger(c)).Uninstall(c.Context())
			if err == nil {
				<-c.Context().Done()
			}
			return err
		}
		var faults []error
		if cfg.Image.NodeName == "" {
			faults = append(faults, errors.New("--node-name: expected the name of this host's Node, or NODE_NAME in the environment"))
		}
		if cfg.Interval <= 0 {
			faults = append(faults, fmt.Errorf("--interval %s: expected a positive duration", cfg.Interval))
		}
		if len(faults) > 0 {
			return cli.BadInput(errors.Join(faults...))
		}
		return runInstaller(c.Context(), install.New(cfg, logger(c)), *metrics)
	}
	return c
}

// runInstaller runs an installer, and serves metrics if there is an address, until ctx ends.
func runInstaller(ctx context.Context, i *install.Installer, metrics string) error {
	if metrics == "" {
		return i.Run(ctx)
	}
	on, err := net.Listen("tcp", metrics)
	if err != nil {
		return cli.BadInput(fmt.Errorf("--metrics-address: %w", err))
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- i.ServeMetrics(ctx, on)
	}()
	err = i.Run(ctx)
	cancel()
	return errors.Join(err, <-served)
}

// server is the API server as the kubelet names it in every pod.
func server() string {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return ""
	}
	return "https://" + net.JoinHostPort(host, port)
}

func uninstallCommand() *cobra.Command {
	c := &cobra.Command{Use: "uninstall", Short: "Stop evictd and remove what was installed, its state included", Args: cobra.NoArgs}
	var cfg install.Config
	hostFlags(c, &cfg)
	c.RunE = func(c *cobra.Command, _ []string) error { return install.New(cfg, logger(c)).Uninstall(c.Context()) }
	return c
}

// enterCommand is what run executes itself with.
func enterCommand() *cobra.Command {
	return &cobra.Command{
		Use: install.EnterCommand + " ROOT COMMAND [ARGUMENT]...", Hidden: true, Args: cobra.MinimumNArgs(2), DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return install.Enter(args[0], args[1:]) },
	}
}

func readyCommand() *cobra.Command {
	c := &cobra.Command{Use: "ready", Short: "Check that evictd is active, for a readiness probe", Args: cobra.NoArgs}
	var file string
	stateFile(c, &file)
	c.RunE = func(*cobra.Command, []string) error { return install.Ready(file) }
	return c
}
