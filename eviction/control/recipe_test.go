package control

import (
	"testing"

	"github.com/evictd/evictd/eviction"
)

// A signal without a rate would make the poll divide by zero.
func TestEverySignalHasAFillRate(t *testing.T) {
	for _, s := range eviction.Signals() {
		if fillRates[s] <= 0 {
			t.Errorf("%v has no rate in fillRates", s)
		}
	}
}
