package scheduleradapter

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/scheduleradapter/kube"
)

func drainCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "drain NODE",
		Short: "Empty a node, as disruption budgets allow",
		Long: `Cordon a node and evict its pods through the Eviction API, which respects disruption
budgets and grace periods, and wait until they are gone. Pods of daemon sets, static
pods and those that have ended stay. Nothing is done where a pod is there that no
controller makes anew, unless forced.`,
		Args: cobra.ExactArgs(1),
	}
	flags := c.Flags()
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server (default in-cluster)")
	server := flags.String("server", "", "URL of the API server, or unix:PATH of the embedded one")
	dryRun := flags.Bool("dry-run", false, "tell what would be done and do nothing")
	force := flags.Bool("force", false, "evict also pods that no controller makes anew")
	grace := flags.Int64("grace-period", -1, "seconds that pods get to end; negative for what each asks for")
	timeout := flags.Duration("timeout", 0, "give up after this long; 0s for never")
	c.RunE = func(c *cobra.Command, args []string) error {
		how, err := kubeclient.Config(*kubeconfig, *server)
		if *timeout < 0 {
			err = errors.Join(err, fmt.Errorf("--timeout %s: must not be negative", *timeout))
		}
		if err != nil {
			return cli.BadInput(err)
		}
		client, err := kubernetes.NewForConfig(how)
		if err != nil {
			return cli.BadInput(err)
		}
		out := c.OutOrStdout()
		progress := cli.NewProgress(out, cli.Terminal(out), "pods gone")
		defer progress.End()
		d := &kube.Drain{Client: client, Node: args[0], DryRun: *dryRun, Force: *force, Progress: progress}
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
			err = errors.Join(cause, err) // of a request that it ended
		}
		return err
	}
	return c
}
