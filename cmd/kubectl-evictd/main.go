// Command kubectl-evictd is a plugin of kubectl: it shows what evictd on a node shows, and
// uninstalls evictd from all nodes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/install/kube"
	"github.com/evictd/evictd/internal/kubeclient"
)

// version is stamped by the linker.
var version = "unknown"

const name = "kubectl-evictd"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	return cli.New(name, "Shows what evictd on a node shows, and uninstalls it from all nodes", version,
		onNode("status", "Show what the node has left, and which pod would be evicted", "--status-address=unix:/host/run/evictd/status.sock"),
		onNode("explain", "Show in which order the node's pods would be evicted, and why", "--status-address=unix:/host/run/evictd/status.sock"),
		onNode("why", "Show what led to the last eviction on the node, or to that of a pod", "--state-dir=/host/var/lib/evictd"),
		uninstallCommand())
}

// onNode is a command of evictd that runs in the pod of evictd-install on a node. The flag says
// where the host's evictd is from there.
func onNode(command, short, flag string) *cobra.Command {
	c := &cobra.Command{
		Use: command + " NODE [-- ARGUMENTS OF evictd " + command + "]", Short: short, Args: cobra.MinimumNArgs(1),
		Long: short + ". It runs `evictd " + command + "` in the pod of the DaemonSet on the node, by kubectl exec, and takes kubectl's right to do so.",
	}
	kubectl := c.Flags().String("kubectl", "kubectl", "program that runs the command in the pod")
	kubeconfig := c.Flags().String("kubeconfig", "", "kubeconfig (default that of kubectl)")
	kubeContext := c.Flags().String("context", "", "context of the kubeconfig (default the current one)")
	c.RunE = func(c *cobra.Command, args []string) error {
		node, further := args[0], args[1:]
		if command == "why" && len(further) == 0 {
			further = []string{"--last"}
		}
		var flags []string
		for flag, value := range map[string]string{"--kubeconfig=": *kubeconfig, "--context=": *kubeContext} {
			if value != "" {
				flags = append(flags, flag+value)
			}
		}
		find := exec.CommandContext(c.Context(), *kubectl, append(flags, "get", "pods", "--namespace="+kube.Namespace, "--selector=app="+kube.Name,
			"--field-selector=spec.nodeName="+node+",status.phase=Running", "--output=jsonpath={.items[0].metadata.name}")...)
		find.Stderr = c.ErrOrStderr()
		pod, err := find.Output()
		if err != nil {
			return fmt.Errorf("find the pod of evictd on node %s: %w", node, err)
		}
		if len(pod) == 0 {
			return fmt.Errorf("node %s has no running pod of daemonset %s/%s", node, kube.Namespace, kube.Name)
		}
		run := exec.CommandContext(c.Context(), *kubectl, append(append(flags, "exec", "--namespace="+kube.Namespace, "--container="+kube.Name,
			strings.TrimSpace(string(pod)), "--", "/usr/bin/evictd", command, flag), further...)...)
		run.Stdout, run.Stderr = c.OutOrStdout(), c.ErrOrStderr()
		return run.Run()
	}
	return c
}

func uninstallCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "uninstall", Short: "Uninstall evictd from every node of the DaemonSet, and list the nodes that were not reached", Args: cobra.NoArgs,
		Long: "Have the pods of the DaemonSet evictd-system/evictd stop evictd on their hosts and remove all that they have installed, and remove the conditions, taints and Leases of evictd. Then the " +
			"DaemonSet can be deleted. With nodes that were not reached the exit code is 1.",
	}
	timeout := c.Flags().Duration("timeout", 5*time.Minute, "how long to wait for the nodes")
	kubeconfig := c.Flags().String("kubeconfig", "", "kubeconfig of the API server (default $KUBECONFIG, or the service account of this pod)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *kubeconfig == "" {
			*kubeconfig = os.Getenv("KUBECONFIG")
		}
		cfg, err := kubeclient.Config(*kubeconfig, "")
		if err != nil {
			return cli.BadInput(err)
		}
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), *timeout)
		defer cancel()
		missing, err := kube.Uninstall(ctx, client, func(node string) { fmt.Fprintln(c.OutOrStdout(), "uninstalled from", node) })
		for _, node := range missing {
			err = errors.Join(err, fmt.Errorf("node %s was not reached: evictd is still installed there", node))
		}
		return err
	}
	return c
}
