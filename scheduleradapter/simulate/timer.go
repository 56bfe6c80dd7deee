package simulate

import (
	"container/heap"
	"time"
)

// timers are functions by time, then by the order of add.
type timers struct {
	list []timer
	set  int
}

type timer struct {
	at     time.Time
	number int
	do     func()
}

func (t *timers) add(at time.Time, do func()) {
	t.set++
	heap.Push(t, timer{at, t.set, do})
}

// due removes the next function that is due; nil: there is none.
func (t *timers) due(by time.Time) func() {
	if len(t.list) == 0 || t.list[0].at.After(by) {
		return nil
	}
	return heap.Pop(t).(timer).do
}

func (t *timers) Len() int { return len(t.list) }

func (t *timers) Less(i, j int) bool {
	a, b := &t.list[i], &t.list[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.number < b.number
}

func (t *timers) Swap(i, j int) { t.list[i], t.list[j] = t.list[j], t.list[i] }

func (t *timers) Push(x any) { t.list = append(t.list, x.(timer)) }

func (t *timers) Pop() any {
	last := len(t.list) - 1
	x := t.list[last]
	t.list[last] = timer{}
	t.list = t.list[:last]
	return x
}
