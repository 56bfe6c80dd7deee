package nodetable

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestATallyIsAMap: rows are ascending, without zero counts, in whichever order they came.
func TestATallyIsAMap(t *testing.T) {
	for seed, order := range []func(*rand.Rand, int) int{
		func(r *rand.Rand, _ int) int { return r.IntN(5000) },
		func(_ *rand.Rand, i int) int { return i % 5000 },
		func(_ *rand.Rand, i int) int { return 4999 - i%5000 },
	} {
		random := rand.New(rand.NewPCG(uint64(seed), 1))
		var y Tally
		want := map[Row]int32{}
		for i := range 60_000 {
			row, n := Row(order(random, i)), int32(1+random.IntN(2))
			if had := want[row]; had > 0 && (random.IntN(2) == 0 || i > 40_000) {
				n = -min(n, had)
			}
			y.add(row, n)
			if want[row] += n; want[row] == 0 {
				delete(want, row)
			}
			if i%2000 != 0 && i != 59_999 {
				continue
			}
			var all []RowCount
			for _, row := range slices.Sorted(maps.Keys(want)) {
				all = append(all, RowCount{row, want[row]})
			}
			if got := slices.Collect(y.Rows()); !slices.Equal(got, all) || y.Len() != len(all) {
				t.Fatalf("order %d: %d rows after %d changes, expected %d", seed, y.Len(), i, len(all))
			}
			for row := range Row(5000) {
				if y.On(row) != want[row] {
					t.Fatalf("order %d: %d pods on row %d, expected %d", seed, y.On(row), row, want[row])
				}
			}
			for _, block := range y.blocks {
				if len(block) == 0 || len(block) > tallyBlock {
					t.Fatalf("order %d: a block of %d rows", seed, len(block))
				}
			}
		}
	}
}

// BenchmarkTally adds and removes a row among others.
func BenchmarkTally(b *testing.B) {
	for _, rows := range []int{1, 1000, 1_000_000} {
		b.Run(fmt.Sprint(rows, " rows"), func(b *testing.B) {
			var y Tally
			for row := range rows {
				y.add(Row(2*row), 1)
			}
			random := rand.New(rand.NewPCG(1, 1))
			for b.Loop() {
				row := Row(2*random.IntN(rows) + 1)
				y.add(row, 1)
				y.add(row, -1)
			}
		})
	}
}
