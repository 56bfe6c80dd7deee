package tell

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Short rounds a signal's quantity to what a person reads: bytes as 1.4Gi for
// 1503238553, inodes and process ids as 1.5M.
func Short(signal, quantity string) string {
	q, err := resource.ParseQuantity(quantity)
	if err != nil {
		return quantity
	}
	base, suffix := int64(1024), "i"
	if strings.HasSuffix(signal, ".inodesFree") || strings.HasPrefix(signal, "pid.") {
		base, suffix = 1000, ""
	}
	n := q.Value()
	size := base * base * base * base
	for _, unit := range []string{"T", "G", "M", "k"} {
		if suffix != "" {
			unit = strings.ToUpper(unit)
		}
		switch whole := n / size; {
		case whole >= 100 || whole <= -100 || n%size == 0 && n != 0:
			return fmt.Sprintf("%d%s%s", whole, unit, suffix)
		case whole != 0:
			return fmt.Sprintf("%.1f%s%s", float64(n)/float64(size), unit, suffix)
		}
		size /= base
	}
	return fmt.Sprint(n)
}
