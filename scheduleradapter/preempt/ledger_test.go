package preempt

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestSumsAreTheSameAfterMoreChangesThanTheTableLists(t *testing.T) {
	c := newCluster(t, 100, 100, at(0))
	for i := range 100 {
		name := fmt.Sprint("node-", i)
		c.node(name, 8)
		c.run(name, c.pod(fmt.Sprint("pod-", i), int32(i%3), 1))
	}
	var l ledger
	l.follow(c.table)
	mark := c.table.Mark()
	gone := c.table.Displace(c.table.PodsOn(7)[0].UID)
	c.table.RemoveNode(c.table.Node(9).Name)
	for i := 0; ; i++ {
		if _, known := c.table.ChangedSince(mark); !known && i > c.table.Rows() {
			break
		}
		c.table.Place(gone, nodetable.Row(20+i%2))
	}
	l.follow(c.table)
	var anew ledger
	anew.follow(c.table)
	for row := range anew.rows {
		if len(l.rows[row])+len(anew.rows[row]) > 0 && !reflect.DeepEqual(l.rows[row], anew.rows[row]) {
			t.Errorf("row %d: %v, expected %v", row, l.rows[row], anew.rows[row])
		}
	}
}
