package daemon

import (
	"context"
	"runtime"
	"testing"
)

func TestNearAThresholdGoHasMoreProcessorsThanTheMachine(t *testing.T) {
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	ctx, cancel := context.WithCancel(t.Context())
	nearby, ended := make(chan bool), make(chan struct{})
	go func() {
		defer close(ended)
		setProcessors(ctx, nearby)
	}()
	nearby <- true
	nearby <- true // received once the first is done
	if n := runtime.GOMAXPROCS(0); n != processors {
		t.Errorf("near: GOMAXPROCS %d", n)
	}
	nearby <- false
	nearby <- false
	if n := runtime.GOMAXPROCS(0); n != 2 {
		t.Errorf("far: GOMAXPROCS %d", n)
	}
	cancel()
	<-ended
}
