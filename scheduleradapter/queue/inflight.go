package queue

import "github.com/evictd/evictd/scheduleradapter/framework"

// inFlightPods has the pods in flight in the order of Pop, and the events since the
// oldest Pop: an event may help a pod that is rejected after it. A pod that waits
// for Permit keeps all events since its Pop. A woken pod is among them from its move to
// its Pop.
type inFlightPods struct {
	oldest, newest *Entry
	events         []inFlightEvent
	dead           int    // number of leading events that no pod needs
	base           uint64 // number of events[0]
}

type inFlightEvent struct {
	occurrence *framework.Occurrence
	only       *Entry // pod that the event concerns; nil: all
}

func (f *inFlightPods) enter(e *Entry) {
	e.from = f.base + uint64(len(f.events))
	f.link(e)
}

// wake enters a pod that the latest event, o, has moved.
func (f *inFlightPods) wake(e *Entry, o *framework.Occurrence) {
	if n := len(f.events); n == 0 || f.events[n-1].occurrence != o {
		f.events = append(f.events, inFlightEvent{o, nil})
	}
	e.from = f.base + uint64(len(f.events)-1)
	f.link(e)
}

func (f *inFlightPods) link(e *Entry) {
	e.older = f.newest
	if f.newest == nil {
		f.oldest = e
	} else {
		f.newest.younger = e
	}
	f.newest = e
}

// leave removes a pod and the events that only it needs.
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
	if f.dead > len(f.events)/2 { // each event is copied at most once
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

// since has the events after the Pop of e, including those that concern other pods.
func (f *inFlightPods) since(e *Entry) []inFlightEvent { return f.events[e.from-f.base:] }
