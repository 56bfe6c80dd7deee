package simulate

import (
	"slices"
	"time"
)

// timers are functions by time, then by the order of add.
type timers []timer

type timer struct {
	at time.Time
	do func()
}

func (t *timers) add(at time.Time, do func()) {
	i, _ := slices.BinarySearchFunc(*t, at, func(other timer, at time.Time) int {
		if other.at.After(at) {
			return 1
		}
		return -1
	})
	*t = slices.Insert(*t, i, timer{at, do})
}

// due removes the next function that is due; nil: there is none.
func (t *timers) due(by time.Time) func() {
	if len(*t) == 0 || (*t)[0].at.After(by) {
		return nil
	}
	do := (*t)[0].do
	(*t)[0] = timer{}
	*t = (*t)[1:]
	return do
}
