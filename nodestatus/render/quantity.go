package render

import (
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/eviction"
)

// Short rounds a signal's quantity to what a person reads; that of what is no signal
// counts as bytes.
func Short(signal, quantity string) string {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return quantity
	}
	s, err := eviction.ParseSignal(signal)
	if err != nil {
		s = eviction.MemoryAvailable
	}
	return s.Rounded(q.Value())
}
