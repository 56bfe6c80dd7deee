package main

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// short rounds a resource quantity to what a person reads: 1.4Gi for 1503238553.
func short(quantity string) string {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return quantity
	}
	n := q.Value()
	if q.Format == resource.DecimalSI && -10_000 < n && n < 10_000 {
		return fmt.Sprint(n)
	}
	for i, unit := range []string{"Ti", "Gi", "Mi", "Ki"} {
		size := int64(1) << (40 - 10*i)
		switch whole := n / size; {
		case whole >= 100 || whole <= -100 || n%size == 0 && n != 0:
			return fmt.Sprintf("%d%s", whole, unit)
		case whole != 0:
			return fmt.Sprintf("%.1f%s", float64(n)/float64(size), unit)
		}
	}
	return fmt.Sprint(n)
}
