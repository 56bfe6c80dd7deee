package framework

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestExtremesAreTheLowestAndTheHighest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for n := 1; n < 50; n++ {
		scores := make([]int64, n)
		for i := range scores {
			scores[i] = random.Int64N(100) - 50
		}
		if least, most := Extremes(scores); least != slices.Min(scores) || most != slices.Max(scores) {
			t.Errorf("%v: from %d to %d", scores, least, most)
		}
	}
}

func TestMappingMakesOfEachScoreWhatItsFunctionDoes(t *testing.T) {
	var m Mapping
	of := func(score int64) int64 { return score*score + 1 }
	for _, c := range []struct{ scores, want []int64 }{
		{[]int64{3, 4, 3, 5, 3}, []int64{10, 17, 10, 26, 10}},              // few distinct scores
		{[]int64{3, 400}, []int64{10, 160001}},                             // all distinct
		{[]int64{3, 4, -3, 5, 300, 4}, []int64{10, 17, 10, 26, 90001, 17}}, // some out of range
		{[]int64{}, []int64{}},
	} {
		m.Apply(c.scores, 3, 5, of)
		if !slices.Equal(c.scores, c.want) {
			t.Errorf("%v, want %v", c.scores, c.want)
		}
	}
	wide := []int64{-1 << 62, 1 << 62}
	m.Apply(wide, -1<<62, 1<<62, func(score int64) int64 { return score >> 62 })
	if !slices.Equal(wide, []int64{-1, 1}) {
		t.Errorf("%v, want -1 and 1", wide)
	}
}
