package outoftree

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// verdicts are why the nodes were rejected, for PostFilter.
type verdicts struct {
	nodes  map[string]*fwk.Status
	absent *fwk.Status // of all others
}

// judge collects what a cycle found out. Nodes rejected for the same reasons
// share a status.
func judge(c *framework.Cycle) verdicts {
	v := verdicts{map[string]*fwk.Status{}, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)}
	switch {
	case !c.Refusal().OK():
		v.absent = answer(c.Refusal())
	case len(c.Narrowing()) > 0:
		v.absent = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", c.Narrowing()))
	}
	kinds := map[framework.Rejection]*fwk.Status{}
	for row := range c.Evaluated.All() {
		r, rejected := c.Rejected(row)
		if !rejected {
			continue
		}
		if kinds[r] == nil {
			kinds[r] = refused(c, r)
		}
		v.nodes[c.Table.Node(row).Name.Value()] = kinds[r]
	}
	return v
}

// Get is why a node was rejected.
func (v verdicts) Get(node string) *fwk.Status {
	if s := v.nodes[node]; s != nil {
		return s
	}
	return v.absent
}

// NodesForStatusCode are the nodes of a lister that were rejected with a code.
func (v verdicts) NodesForStatusCode(lister fwk.NodeInfoLister, code fwk.Code) ([]fwk.NodeInfo, error) {
	all, err := lister.List()
	if err != nil {
		return nil, err
	}
	var nodes []fwk.NodeInfo
	for _, node := range all {
		if v.Get(node.Node().Name).Code() == code {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}
