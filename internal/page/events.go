package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// updateInterval is how often a page is updated.
	updateInterval = 2 * time.Second
	// maxListeners bounds the open pages; more are refused.
	maxListeners = 16
	// backlog is how many updates a listener may be behind before it is dropped.
	backlog = 8
	// writeTimeout bounds one write to a connection.
	writeTimeout = 10 * time.Second
	// readTimeout bounds one call of Feed.Current.
	readTimeout = 5 * time.Second
)

// Feed is what a page shows.
type Feed struct {
	// History is the first event of a page: what happened after an instant, or
	// everything kept for the zero one.
	History func(since time.Time) Event
	// Current returns the current events. An event that has not changed is not sent
	// again. An event with Changes has its Data sent to new pages only, and the Changes,
	// since the call before, to the others.
	Current func(context.Context) ([]Event, error)
}

// Event is sent to a page as JSON.
type Event struct {
	Name    string
	Data    any
	Changes any // nil: the whole Data is sent
}

// Unchanged is the Changes of an event that is sent to new pages only.
var Unchanged any = unchanged{}

type unchanged struct{}

// hub is the open pages and the last events.
type hub struct {
	joined chan struct{} // has a value after a page was opened

	mu        sync.Mutex
	listeners map[*listener]struct{}
	closed    bool

	// Of Run's goroutine.
	readAt time.Time
	last   []frame
}

// listener is one open page.
type listener struct {
	frames chan []byte // closed to end the connection
	isNew  bool        // it has not received the current events
}

// frame is an event for the open pages.
type frame struct {
	name  string
	whole func() []byte // for new pages
	news  []byte        // for the others; empty: it has not changed
	data  []byte        // of an event without Changes
}

func newHub() hub {
	return hub{joined: make(chan struct{}, 1), listeners: map[*listener]struct{}{}}
}

// Run updates all open pages until ctx ends, which closes their connections. Without
// open pages it does nothing.
func (p *Page) Run(ctx context.Context) {
	defer p.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.joined:
		}
		for p.update(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-p.joined:
			case <-time.After(updateInterval):
			}
		}
	}
}

// update reads the events, encodes them once, and returns whether a page is open. A new
// page receives the last events at once.
func (p *Page) update(ctx context.Context) bool {
	stale := time.Since(p.readAt) >= updateInterval
	if !p.hasListeners() {
		if stale {
			p.last = nil
		}
		return false
	}
	if stale {
		p.read(ctx)
	}
	var whole, news []byte
	arrived := p.arrived()
	for _, f := range p.last {
		if len(arrived) > 0 {
			whole = append(whole, f.whole()...)
		}
		news = append(news, f.news...)
	}
	if news == nil {
		news = []byte(":\n\n") // keeps the connection open
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.listeners {
		switch {
		case arrived[l]:
			p.send(l, whole)
		case stale && !l.isNew:
			p.send(l, news)
		}
	}
	return true
}

// send drops a listener that is too far behind; p.mu is held.
func (p *Page) send(l *listener, text []byte) {
	select {
	case l.frames <- text:
	default:
		p.drop(l)
	}
}

func (p *Page) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	events, err := p.feed.Current(ctx)
	p.readAt = time.Now()
	if err != nil {
		events = []Event{{Name: "fault", Data: err.Error()}}
	}
	last := p.last
	p.last = make([]frame, 0, len(events))
	for _, e := range events {
		p.last = append(p.last, newFrame(e, p.readAt, last))
	}
}

// newFrame encodes an event, unless it is whole and no page needs that.
func newFrame(e Event, at time.Time, last []frame) frame {
	f := frame{name: e.Name}
	switch e.Changes {
	case nil:
		var text []byte
		text, f.data = encode(e.Name, e.Data, at)
		f.whole = func() []byte { return text }
		f.news = text
		for _, before := range last {
			if before.name == f.name && before.data != nil && bytes.Equal(before.data, f.data) {
				f.news = nil
			}
		}
		return f
	case Unchanged:
	default:
		f.news, _ = encode(e.Name, e.Changes, at)
	}
	f.whole = sync.OnceValue(func() []byte { text, _ := encode(e.Name, e.Data, at); return text })
	return f
}

// encode writes an event as server-sent event (WHATWG HTML). Its id is the time in
// milliseconds; data is part of the text.
func encode(name string, value any, at time.Time) (text, data []byte) {
	data, err := json.Marshal(value)
	if err != nil {
		name, data = "fault", fmt.Appendf(nil, "%q", err.Error())
	}
	text = fmt.Appendf(nil, "event: %s\nid: %d\ndata: ", name, at.UnixMilli())
	begin := len(text)
	text = fmt.Appendf(text, "%s\n\n", data)
	return text, text[begin:]
}

// events serves /v1/events until the page is closed, or the program ends.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	l := p.join()
	if l == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open, or the program ends", maxListeners), http.StatusServiceUnavailable)
		return
	}
	defer p.leave(l)
	var since time.Time
	if ms, err := strconv.ParseInt(r.Header.Get("Last-Event-ID"), 10, 64); err == nil {
		since = time.UnixMilli(ms)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	line := http.NewResponseController(w)
	write := func(text []byte) bool {
		_ = line.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection that cannot have one is dropped when it is behind
		_, err := w.Write(text)
		return err == nil && line.Flush() == nil
	}
	past := p.feed.History(since)
	text, _ := encode(past.Name, past.Data, time.Now())
	for open := true; open && write(text); {
		select {
		case text, open = <-l.frames:
		case <-r.Context().Done():
			return
		}
	}
}

func (h *hub) hasListeners() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

// arrived are the pages that have not received the current events. They are not new from
// now on.
func (h *hub) arrived() map[*listener]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	arrived := map[*listener]bool{}
	for l := range h.listeners {
		if l.isNew {
			l.isNew, arrived[l] = false, true
		}
	}
	return arrived
}

// join returns nil at the maximum of listeners.
func (h *hub) join() *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.listeners) >= maxListeners {
		return nil
	}
	l := &listener{frames: make(chan []byte, backlog), isNew: true}
	h.listeners[l] = struct{}{}
	select {
	case h.joined <- struct{}{}:
	default:
	}
	return l
}

func (h *hub) leave(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drop(l)
}

// drop ends a listener; h.mu is held.
func (h *hub) drop(l *listener) {
	if _, listens := h.listeners[l]; listens {
		delete(h.listeners, l)
		close(l.frames)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for l := range h.listeners {
		h.drop(l)
	}
}
