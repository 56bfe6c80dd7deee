package framework

import (
	"math/rand/v2"
	"testing"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

func TestBlocksHaveTheHighestSumsOfTheirRows(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	const rows = 3*blockRows + 7
	e := &rowScores{}
	e.empty(0)
	e.extend(rows)
	for step := range 20_000 {
		row, class := nodetable.Row(random.IntN(rows)), uint8(noClass)
		if random.IntN(4) > 0 {
			var ok bool
			if class, ok = e.classOf(&[classValues]int32{int32(random.IntN(5))}); !ok {
				t.Fatal("there are too many classes")
			}
		}
		e.set(row, class, uint16(random.IntN(6)))
		if step%100 > 0 {
			continue
		}
		for i := range e.classes {
			members := 0
			for block := range blocks(rows) {
				if got, want := e.classes[i].tops[block], e.topOf(uint8(i), nodetable.Row(block)); got != want {
					t.Fatalf("step %d: class %d has %v in block %d, want %v", step, i, got, block, want)
				}
			}
			for _, class := range e.class {
				if int(class) == i {
					members++
				}
			}
			if members != e.classes[i].rows {
				t.Fatalf("step %d: class %d has %d rows, want %d", step, i, e.classes[i].rows, members)
			}
		}
	}
}

func TestClassesAreBoundedAndReused(t *testing.T) {
	e := &rowScores{}
	e.empty(0)
	e.extend(2 * mostClasses)
	for i := range mostClasses {
		class, ok := e.classOf(&[classValues]int32{int32(i)})
		if !ok {
			t.Fatalf("there is no class %d", i)
		}
		e.set(nodetable.Row(i), class, 0)
	}
	if _, ok := e.classOf(&[classValues]int32{-1}); ok {
		t.Error("there are more classes than the bound")
	}
	e.set(3, noClass, 0)
	if class, ok := e.classOf(&[classValues]int32{-1}); !ok || class != 3 {
		t.Errorf("the new class is %d, %t, want 3, whose last row left", class, ok)
	}
}

// TestEntriesInUseAreNotDisplaced has more signatures in turn than the bound allows: those
// that have an entry keep it.
func TestEntriesInUseAreNotDisplaced(t *testing.T) {
	table := nodetable.New()
	const rows = 1 << 20
	k, classes := &ScoreCache{}, make([]uint8, rows) // all entries share these
	signature := func(i int) *Signature {
		s := &Signature{}
		s.Add(int64(i))
		return s
	}
	hits := 0
	const signatures = 400
	for attempt := range 10 * signatures {
		k.clock++
		s := signature(attempt % signatures)
		if e := k.entries[*s]; e != nil {
			e.used = k.clock
			hits++
			continue
		}
		clock, _, known := k.note(s, table)
		if known && k.makeRoom(rows, clock) {
			e := k.add(s)
			e.class = classes
			e.used = k.clock
			k.bytes += e.bytes()
		}
	}
	fit := mostBytes(rows) / (3 * rows)
	if k.bytes > mostBytes(rows) || len(k.entries) < fit/2 {
		t.Errorf("%d entries have %d bytes, the bound is %d", len(k.entries), k.bytes, mostBytes(rows))
	}
	if want := 8 * len(k.entries) * 9 / 10; hits < want {
		t.Errorf("%d attempts had an entry, want %d of %d entries", hits, want, len(k.entries))
	}
}
