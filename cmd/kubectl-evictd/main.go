// Command kubectl-evictd is a plugin of kubectl: it shows what evictd on a node shows, and
// uninstalls evictd from all nodes.
package main

import (
	"cmp"
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

// stateFlag says where the state of the host's evictd is in the pod.
const stateFlag = "--state-dir=/host/var/lib/evictd"

func main() { os.Exit(cli.Execute(context.Background(), newCommand(), os.Args[1:])) }

func newCommand() *cobra.Command {
	return cli.New(name, "Shows what evictd on a node shows, and uninstalls it from all nodes", version,
		onNode("status", "Show what the node has left, and which pod would be evicted", "--status-address=unix:/host/run/evictd/status.sock"),
		onNode("explain", "Show in which order the node's pods would be evicted, and why", "--status-address=unix:/host/run/evictd/status.sock"),
		onNode("why", "Show what led to the last eviction on the node, or to that of a pod", stateFlag),
		reportCommand(), uninstallCommand())
}

// onNode is a command of evictd that runs in the pod of evictd-install on a node. The flag says
// where the host's evictd is from there.
func onNode(command, short, flag string) *cobra.Command {
	c := &cobra.Command{
		Use: command + " NODE [-- ARGUMENTS OF evictd " + command + "]", Short: short, Args: cobra.MinimumNArgs(1),
		Long: short + ". It runs `evictd " + command + "` in the pod of the DaemonSet on the node, by kubectl exec, and takes kubectl's right to do so.",
	}
	k := kubectlFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		node, further := args[0], args[1:]
		if command == "why" && len(further) == 0 {
			further = []string{"--last"}
		}
		pods, err := k.pods(c, node)
		if err != nil {
			return err
		}
		return k.exec(c, pods[0], append([]string{command, flag}, further...))
	}
	return c
}

// reportCommand is a command of evictd that runs on a node or on all.
func reportCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "report [NODE]", Short: "Compare evictd's evictions, also those of a dry run, with the kubelet's", Args: cobra.MaximumNArgs(1),
		Long: "Compare the evictions by evictd, or those of its dry run, with those by the kubelet, on a node or on all. It runs `evictd report` in the pods of the DaemonSet, by kubectl exec.",
	}
	k := kubectlFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		pods, err := k.pods(c, strings.Join(args, ""))
		for _, pod := range pods {
			fmt.Fprintf(c.OutOrStdout(), "Node %s\n", pod.node)
			if failed := k.exec(c, pod, []string{"report", stateFlag}); failed != nil {
				err = errors.Join(err, fmt.Errorf("node %s: %w", pod.node, failed))
			}
			fmt.Fprintln(c.OutOrStdout())
		}
		return err
	}
	return c
}

// kubectl runs commands in the pods of the DaemonSet.
type kubectl struct{ program, kubeconfig, context string }

func kubectlFlags(c *cobra.Command) *kubectl {
	var k kubectl
	c.Flags().StringVar(&k.program, "kubectl", "kubectl", "program that runs the command in the pod")
	c.Flags().StringVar(&k.kubeconfig, "kubeconfig", "", "kubeconfig (default that of kubectl)")
	c.Flags().StringVar(&k.context, "context", "", "context of the kubeconfig (default the current one)")
	return &k
}

// podOn is a pod of the DaemonSet.
type podOn struct{ node, name string }

// command is one of kubectl.
func (k *kubectl) command(c *cobra.Command, args ...string) *exec.Cmd {
	var flags []string
	for _, f := range [][2]string{{"--kubeconfig=", k.kubeconfig}, {"--context=", k.context}} {
		if f[1] != "" {
			flags = append(flags, f[0]+f[1])
		}
	}
	run := exec.CommandContext(c.Context(), k.program, append(flags, args...)...)
	run.Stderr = c.ErrOrStderr()
	return run
}

// pods are the running ones on a node, or on all where it is empty; at least one without an error.
func (k *kubectl) pods(c *cobra.Command, node string) (all []podOn, err error) {
	selector, of := "status.phase=Running", ""
	if node != "" {
		selector, of = "spec.nodeName="+node+","+selector, "node "+node+" has"
	}
	text, err := k.command(c, "get", "pods", "--namespace="+kube.Namespace, "--selector=app="+kube.Name, "--field-selector="+selector,
		`--output=jsonpath={range .items[*]}{.spec.nodeName} {.metadata.name}{"\n"}{end}`).Output()
	if err != nil {
		return nil, fmt.Errorf("find the pods of evictd: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			all = append(all, podOn{fields[0], fields[1]})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s no running pod of daemonset %s/%s", cmp.Or(of, "there is"), kube.Namespace, kube.Name)
	}
	return all, nil
}

// exec runs a command of evictd in a pod.
func (k *kubectl) exec(c *cobra.Command, pod podOn, command []string) error {
	run := k.command(c, append([]string{"exec", "--namespace=" + kube.Namespace, "--container=" + kube.Name, pod.name, "--", "/usr/bin/evictd"}, command...)...)
	run.Stdout = c.OutOrStdout()
	return run.Run()
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
