package render

import (
	"cmp"

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

// Compared writes what was available of a signal beside its threshold.
func Compared(signal, available, threshold string) string {
	if signal == eviction.MemoryStall.String() {
		return available + " of the time, threshold " + threshold
	}
	return Short(signal, available) + " available, " + Short(signal, threshold) + " required"
}

// Gain writes what became free by the end of a victim of a signal: memory, or what it held of
// a disk, which is freed after its end.
func Gain(signal, freed, held string) string {
	if held != "" {
		return "held " + Short(signal, held)
	}
	return "freed " + cmp.Or(Short(memory, freed), "an unknown amount")
}
