package pressure

import (
	"testing"

	signals "github.com/evictd/evictd/eviction"
)

func TestEverySignalHasAKind(t *testing.T) {
	for _, s := range signals.Signals() {
		if _, known := kindOf[s.String()]; !known {
			t.Errorf("kindOf does not have %v, which evictd publishes in the headroom of a node", s)
		}
	}
}
