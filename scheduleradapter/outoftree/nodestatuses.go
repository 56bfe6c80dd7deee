package outoftree

import (
	"fmt"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// nodeStatuses is a fwk.NodeToStatusReader.
type nodeStatuses struct {
	nodes  map[string]*fwk.Status
	absent *fwk.Status // of all other nodes
}

// nodeStatusesOf has the rejections of a cycle. Nodes with the same rejection share
// a status.
func nodeStatusesOf(c *framework.Cycle) nodeStatuses {
	v := nodeStatuses{map[string]*fwk.Status{}, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)}
	switch {
	case !c.PreFilterStatus().OK():
		v.absent = answer(c.PreFilterStatus())
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

func (v nodeStatuses) Get(node string) *fwk.Status {
	if s := v.nodes[node]; s != nil {
		return s
	}
	return v.absent
}

// NodesForStatusCode are the nodes of a lister with a code.
func (v nodeStatuses) NodesForStatusCode(lister fwk.NodeInfoLister, code fwk.Code) ([]fwk.NodeInfo, error) {
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
