package drain

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient"
)

// NewCommand is `evictd-scheduler drain`.
func NewCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Cordon a node and evict its pods",
		Long: `Cordon a node and evict its pods through the Eviction API, which respects disruption
budgets and grace periods, and wait until they are deleted. Pods of DaemonSets, static
pods and completed pods are not evicted. Without --force, a pod without a controller
is an error, and nothing is changed.`,
		Args: cobra.ExactArgs(1),
	}
	flags := c.Flags()
	kubeconfig := flags.String("kubeconfig", "", "path of a kubeconfig (default in-cluster)")
	server := flags.String("server", "", "URL of the API server, or unix:PATH of the embedded one")
	dryRun := flags.Bool("dry-run", false, "print the evictions and change nothing")
	force := flags.Bool("force", false, "also evict pods without a controller")
	grace := flags.Int64("grace-period", -1, "grace period in seconds; negative: that of the pod")
	timeout := flags.Duration("timeout", 0, "maximum duration; 0s: none")
	c.RunE = func(c *cobra.Command, args []string) error {
		cfg, err := kubeclient.Config(*kubeconfig, *server)
		if *timeout < 0 {
			err = errors.Join(err, fmt.Errorf("--timeout %s: must not be negative", *timeout))
		}
		if err != nil {
			return cli.BadInput(err)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return cli.BadInput(err)
		}
		out := c.OutOrStdout()
		progress := cli.NewProgress(out, cli.Terminal(out), "pods deleted")
		defer progress.End()
		d := &Drainer{Client: client, Node: args[0], DryRun: *dryRun, Force: *force, Progress: progress}
		if *grace >= 0 {
			d.Grace = grace
		}
		ctx := c.Context()
		if *timeout > 0 {
			var stop context.CancelFunc
			ctx, stop = context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done within %s", timeout))
			defer stop()
		}
		err = d.Run(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
			err = errors.Join(cause, err) // the error of the canceled request has no cause
		}
		return err
	}
	return c
}
