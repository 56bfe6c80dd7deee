package podspec

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a quantity that a pod brings along: resource.ParseQuantity takes seconds and gigabytes for 1e-99999999.
const (
	maxQuantity       = 40 // characters
	maxExponentDigits = 2
)

// ParseQuantity is resource.ParseQuantity for a text that the owner of a pod has written.
func ParseQuantity(text string) (resource.Quantity, error) {
	if err := CheckQuantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

// CheckQuantity returns the error for a text that resource.ParseQuantity might take long for.
func CheckQuantity(text string) error {
	exponent := ""
	if at := strings.LastIndexAny(text, "eE"); at >= 0 {
		exponent = strings.TrimLeft(text[at+1:], "+-")
	}
	if len(text) > maxQuantity || len(exponent) > maxExponentDigits {
		return fmt.Errorf("a quantity has at most %d characters and %d digits of an exponent", maxQuantity, maxExponentDigits)
	}
	return nil
}

// Amount is a quantity in units of a scale: resource.Milli for millicores, 0 for bytes. It
// is math.MaxInt64 for a larger one, which Value and MilliValue of a sum wrap around.
func Amount(q resource.Quantity, scale resource.Scale) int64 {
	if q.Cmp(*resource.NewScaledQuantity(math.MaxInt64, scale)) >= 0 {
		return math.MaxInt64
	}
	return q.ScaledValue(scale)
}
