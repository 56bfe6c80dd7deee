package queue

import "github.com/evictd/evictd/scheduleradapter/framework"

// inFlightPods are the pods in flight, in order of popping, and what happened since
// the oldest of them was popped: a pod that comes back rejected may have been
// helped while it was away. A pod that waits long in Permit keeps every event
// since it was popped.
type inFlightPods struct {
	oldest, newest *Entry
	events         []inFlightEvent
	dead           int    // events at the front that nobody waits for
	base           uint64 // number of the event events[0]
}

type inFlightEvent struct {
	occurrence *framework.Occurrence
	only       *Entry // whom it concerns; nil for all
}

func (f *inFlightPods) enter(e *Entry) {
	e.from = f.base + uint64(len(f.events))
	e.older = f.newest
	if f.newest == nil {
		f.oldest = e
	} else {
		f.newest.younger = e
	}
	f.newest = e
}

// leave lets go of a pod and of the events that only it waited for.
func (f *inFlightPods) leave(e *Entry) {
	if e.older == nil {
		f.oldest = e.younger
	} else {
		e.older.younger = e.younger
	}
	if e.younger == nil {
		f.newest = e.older
	} else {
		e.younger.older = e.older
	}
	e.older, e.younger = nil, nil

	end := len(f.events)
	if f.oldest != nil {
		end = int(f.oldest.from - f.base)
	}
	clear(f.events[f.dead:end])
	f.dead = end
	if f.dead > len(f.events)/2 { // move what lives to the front, at most once an event
		n := copy(f.events, f.events[f.dead:])
		clear(f.events[n:])
		f.events = f.events[:n]
		f.base += uint64(f.dead)
		f.dead = 0
	}
}

// record keeps an event for the pods in flight, or for one of them.
func (f *inFlightPods) record(o *framework.Occurrence, only *Entry) {
	if f.oldest != nil {
		f.events = append(f.events, inFlightEvent{o, only})
	}
}

// since is what happened after e was popped, what was meant for others included.
func (f *inFlightPods) since(e *Entry) []inFlightEvent { return f.events[e.from-f.base:] }
