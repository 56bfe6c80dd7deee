package main

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/manifest"
	"github.com/evictd/evictd/oom"
)

func oomScoreCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "oom-score FILE",
		Short: "Print the oom_score_adj of each container of pod manifests",
		Args:  cobra.ExactArgs(1),
	}
	output := cli.OutputFlag(c, "json", "text")
	text := c.Flags().String("memory-capacity", "", "the node's memory, a quantity such as 4Gi")
	c.RunE = func(c *cobra.Command, args []string) error {
		capacity, err := resource.ParseQuantity(*text)
		if err != nil || capacity.Sign() <= 0 {
			return cli.BadInput(fmt.Errorf("--memory-capacity %q: expected a positive quantity such as 4Gi", *text))
		}
		data, err := cli.ReadInput(c, args[0])
		if err != nil {
			return err
		}
		pods, err := manifest.Pods(data)
		if err != nil {
			return cli.InFile(args[0], err)
		}
		encoder := json.NewEncoder(c.OutOrStdout())
		for _, pod := range pods {
			for _, container := range oom.Scores(pod, capacity.Value()) {
				line := scoreLine{pod.Namespace + "/" + pod.Name, container.Name, container.QOS, container.ScoreAdj}
				if output.String() == "text" {
					_, err = fmt.Fprintf(c.OutOrStdout(), "%5d  %-10s  %s %s\n", line.ScoreAdj, line.QOS, line.Pod, line.Container)
				} else {
					err = encoder.Encode(line)
				}
				if err != nil {
					return err
				}
			}
		}
		return nil
	}
	return c
}

// scoreLine is one container's line.
type scoreLine struct {
	Pod       string         `json:"pod"`
	Container string         `json:"container"`
	QOS       v1.PodQOSClass `json:"qosClass"`
	ScoreAdj  int            `json:"oomScoreAdj"`
}
