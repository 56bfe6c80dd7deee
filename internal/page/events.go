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
	// period is how often a page is told what is new.
	period = 2 * time.Second
	// mostListeners are told at once; more are refused.
	mostListeners = 16
	// backlog is how many rounds a listener may be behind before it is dropped.
	backlog = 8
	// writing is how long a connection may take what it is told.
	writing = 10 * time.Second
	// looking bounds a look at how things stand.
	looking = 5 * time.Second
)

// Feed is what a page shows.
type Feed struct {
	// History is what a page is told first: what was after an instant, or all that is
	// kept for the zero one.
	History func(since time.Time) Event
	// Current looks at how things stand. An event that is as it was is not told again.
	Current func(context.Context) ([]Event, error)
}

// Event is something that a page is told, as JSON.
type Event struct {
	Name string
	Data any
}

// hub is who listens, and what they were told last.
type hub struct {
	joined chan struct{} // holds a token when somebody has

	mu        sync.Mutex
	listeners map[*listener]struct{}
	over      bool

	// Of Run's goroutine.
	looked time.Time
	last   []frame
}

// listener is one open page.
type listener struct {
	frames chan []byte // closed when it is to go
	fresh  bool        // it has not been told how things stand
}

// frame is an event as it goes over the line.
type frame struct {
	name    string
	text    []byte
	data    []byte // part of text
	changed bool
}

func newHub() hub {
	return hub{joined: make(chan struct{}, 1), listeners: map[*listener]struct{}{}}
}

// Run tells all that listen what is new, until ctx ends, which ends their
// connections. While nobody listens it does nothing.
func (p *Page) Run(ctx context.Context) {
	defer p.close()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.joined:
		}
		for p.tell(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-p.joined:
			case <-time.After(period):
			}
		}
	}
}

// tell looks, encodes once for all, and says whether anybody listens. Whoever came
// since the last look, which was just now, is told what that saw.
func (p *Page) tell(ctx context.Context) bool {
	stale := time.Since(p.looked) >= period
	if !p.listened() {
		if stale {
			p.last = nil
		}
		return false
	}
	if stale {
		p.look(ctx)
	}
	var whole, news []byte
	for _, f := range p.last {
		whole = append(whole, f.text...)
		if f.changed {
			news = append(news, f.text...)
		}
	}
	if news == nil {
		news = []byte(":\n\n") // it is still there
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.listeners {
		switch {
		case l.fresh:
			l.fresh = false
			p.give(l, whole)
		case stale:
			p.give(l, news)
		}
	}
	return true
}

// give drops a listener that is too far behind; p.mu is held.
func (p *Page) give(l *listener, text []byte) {
	select {
	case l.frames <- text:
	default:
		p.drop(l)
	}
}

func (p *Page) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	events, err := p.feed.Current(ctx)
	p.looked = time.Now()
	if err != nil {
		events = []Event{{"fault", err.Error()}}
	}
	last := p.last
	p.last = make([]frame, 0, len(events))
	for _, e := range events {
		f := encode(e, p.looked)
		f.changed = true
		for i := range last {
			if last[i].name == f.name && bytes.Equal(last[i].data, f.data) {
				f.changed = false
			}
		}
		p.last = append(p.last, f)
	}
}

// encode writes an event as a stream has it (WHATWG HTML, server-sent events). Its
// id is when it was, in milliseconds.
func encode(e Event, at time.Time) frame {
	data, err := json.Marshal(e.Data)
	if err != nil {
		e.Name, data = "fault", fmt.Appendf(nil, "%q", err.Error())
	}
	text := fmt.Appendf(nil, "event: %s\nid: %d\ndata: ", e.Name, at.UnixMilli())
	begin := len(text)
	text = fmt.Appendf(text, "%s\n\n", data)
	return frame{name: e.Name, text: text, data: text[begin:]}
}

// events serves /v1/events until the page is closed, or the program ends.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		http.Error(w, "this is for the page of the same address", http.StatusForbidden)
		return
	}
	l := p.join()
	if l == nil {
		w.Header().Set("Retry-After", "10")
		http.Error(w, fmt.Sprintf("%d pages are open, or the program ends", mostListeners), http.StatusServiceUnavailable)
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
		_ = line.SetWriteDeadline(time.Now().Add(writing)) // a connection that cannot have one is dropped when it is behind
		_, err := w.Write(text)
		return err == nil && line.Flush() == nil
	}
	for text, open := encode(p.feed.History(since), time.Now()).text, true; open && write(text); {
		select {
		case text, open = <-l.frames:
		case <-r.Context().Done():
			return
		}
	}
}

func (h *hub) listened() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.listeners) > 0
}

// join returns nil where no more may listen.
func (h *hub) join() *listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || len(h.listeners) >= mostListeners {
		return nil
	}
	l := &listener{frames: make(chan []byte, backlog), fresh: true}
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
	h.over = true
	for l := range h.listeners {
		h.drop(l)
	}
}
