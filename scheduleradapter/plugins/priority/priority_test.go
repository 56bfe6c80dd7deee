package priority

import (
	"testing"
	"time"

	"github.com/evictd/evictd/scheduleradapter/framework"
	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestPodsThatMatterMoreGoFirstThenThoseThatWaitLonger(t *testing.T) {
	queued := func(priority int32, second int64) framework.Queued {
		return framework.Queued{Pod: &nodetable.Pod{Priority: priority}, Timestamp: time.Unix(second, 0)}
	}
	inOrder := []framework.Queued{queued(2, 5), queued(2, 6), queued(0, 1), queued(-1, 0)}
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got := (&Plugin{}).Less(a, b); got != (i < j) {
				t.Errorf("pod %d before pod %d: %t", i, j, got)
			}
		}
	}
}
