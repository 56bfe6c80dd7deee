package nodetable

import (
	"math/rand/v2"
	"testing"
)

// Nth is the element of a list of the rows.
func TestNthRow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{0, 1, 64, 65, 1000} {
		b := Bits(nil).Emptied(rows)
		for i := range rows {
			if random.IntN(3) == 0 {
				b.Set(Row(i))
			}
		}
		all := b.Append(nil)
		for i, row := range all {
			if got := b.Nth(i); got != row {
				t.Fatalf("row %d of %d rows: %d, expected %d", i, rows, got, row)
			}
		}
		if got := b.Nth(len(all)); got != NoRow {
			t.Fatalf("beyond the last of %d: %d", rows, got)
		}
	}
}
