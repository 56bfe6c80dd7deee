package podspec_test

import (
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/podspec"
)

func TestAQuantityThatAPodBringsAlongIsBounded(t *testing.T) {
	for text, want := range map[string]string{
		"1Gi": "1Gi", "5E": "5E", "1e3": "1e3", "2E+9": "2E+9", "1.5Ei": "1536Pi",
		"1e-99999999": "", "1e-999999999": "", "1E100": "", "1" + strings.Repeat("0", 1<<20): "", "0." + strings.Repeat("0", 60) + "1": "", "": "", "lots": "",
	} {
		if q, err := podspec.ParseQuantity(text); (err == nil) != (want != "") || err == nil && q.String() != want {
			t.Errorf("%.40s: %v, %v; expected %q", text, q.String(), err, want)
		}
	}
}
