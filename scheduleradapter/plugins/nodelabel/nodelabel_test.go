package nodelabel_test

import (
	"math/rand/v2"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/evictd/evictd/scheduleradapter/config"
	"github.com/evictd/evictd/scheduleradapter/plugins/nodelabel"
	"github.com/evictd/evictd/scheduleradapter/plugins/plugintest"
)

// The reference looks at every node's labels.
func TestNodesHaveTheLabelsAndLackTheOthersAsTheReferenceSays(t *testing.T) {
	d := plugintest.Dice{Random: rand.New(rand.NewPCG(1, 2))}
	for range 500 {
		args := &config.NodeLabelArgs{}
		for _, label := range []string{"disk", "rack", v1.LabelTopologyZone} {
			if list := plugintest.Pick(d, nil, &args.PresentLabels, &args.AbsentLabels); list != nil && d.Chance(50) {
				*list = append(*list, label)
			}
			if list := plugintest.Pick(d, nil, &args.PresentLabelsPreference, &args.AbsentLabelsPreference); list != nil {
				*list = append(*list, label)
			}
		}
		w := d.Objects(plugintest.New(t), 8, 1, func(*v1.Pod) {})
		result := w.Evaluate(w.Make(nodelabel.New, args), w.Digest(d.Pod("p")))
		rejected, scores := reference(args, w.Nodes)
		result.Holds(t, "node labels", rejected, scores)
	}
}

func reference(args *config.NodeLabelArgs, nodes []*v1.Node) (rejected map[string]string, scores map[string]int64) {
	rejected, scores = map[string]string{}, map[string]int64{}
	for _, n := range nodes {
		count := func(labels []string) (has int) {
			for _, label := range labels {
				if _, found := n.Labels[label]; found {
					has++
				}
			}
			return has
		}
		if count(args.PresentLabels) < len(args.PresentLabels) || count(args.AbsentLabels) > 0 {
			rejected[n.Name] = "never: node(s) didn't have the requested labels"
			continue
		}
		scores[n.Name] = 0
		if all := len(args.PresentLabelsPreference) + len(args.AbsentLabelsPreference); all > 0 {
			met := count(args.PresentLabelsPreference) + len(args.AbsentLabelsPreference) - count(args.AbsentLabelsPreference)
			scores[n.Name] = int64(100 * met / all)
		}
	}
	return rejected, scores
}
