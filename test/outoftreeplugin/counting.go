package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

const countingName = "Counting"

// counting bounds the pods on a node. It counts them in PreFilter and updates the
// counts in its extensions; a difference to the NodeInfo is an error.
type counting struct {
	*notebook
	Limit int `json:"limit"`
}

func newCounting(notes *notebook) func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return func(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
		c := &counting{notebook: notes}
		return c, json.Unmarshal(args.(*runtime.Unknown).Raw, c)
	}
}

func (c *counting) Name() string { return countingName }

// counts are the pods by node.
type counts map[string]int

func (c counts) Clone() fwk.StateData { return maps.Clone(c) }

func counted(state fwk.CycleState) counts {
	data, err := state.Read(countingName)
	if err != nil {
		panic(err) // the scheduler turns it into an error
	}
	return data.(counts)
}

func (c *counting) PreFilter(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	all := counts{}
	for _, node := range nodes {
		all[node.Node().Name] = len(node.GetPods())
	}
	state.Write(countingName, all)
	return nil, nil
}

func (c *counting) PreFilterExtensions() fwk.PreFilterExtensions { return c }

func (c *counting) AddPod(ctx context.Context, state fwk.CycleState, pod *v1.Pod, added fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c.isBounded(ctx, "AddPod")
	c.note("for %s add %s to %s", pod.Name, added.GetPod().Name, node.Node().Name)
	counted(state)[node.Node().Name]++
	return nil
}

func (c *counting) RemovePod(ctx context.Context, state fwk.CycleState, pod *v1.Pod, removed fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c.isBounded(ctx, "RemovePod")
	c.note("for %s remove %s from %s", pod.Name, removed.GetPod().Name, node.Node().Name)
	counted(state)[node.Node().Name]--
	return nil
}

func (c *counting) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	n, name := counted(state)[node.Node().Name], node.Node().Name
	if shown := len(node.GetPods()); n != shown {
		return fwk.AsStatus(fmt.Errorf("%s shows %d pods, and %d were counted", name, shown, n))
	}
	if n >= c.Limit {
		return fwk.NewStatus(fwk.Unschedulable, "node(s) had pods enough")
	}
	return nil
}
