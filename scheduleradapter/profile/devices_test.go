package profile

import (
	"slices"
	"testing"
	"time"
)

func TestExplainNamesTheClaimAndRequestThatANodeLacks(t *testing.T) {
	c := newDeviceCluster(t, 1, 5)
	for range 5 {
		c.schedule(t)
	}
	pod, _ := c.add(t)
	c.Queue.Add(time.Time{}, pod)
	x, found := c.Explain(time.Time{}, pod.String())
	if !found || len(x.Nearest) != 1 {
		t.Fatalf("%+v", x)
	}
	want := []string{"claim " + pod.String() + ", request req-0 (1 of class test-class): matching devices are allocated to other claims"}
	if got := x.Nearest[0].Details; !slices.Equal(got, want) {
		t.Errorf("details %q, want %q", got, want)
	}
}
