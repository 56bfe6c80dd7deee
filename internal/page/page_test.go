package page

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

var own = fstest.MapFS{"web/index.html": {Data: []byte("<!doctype html>")}, "web/app.js": {Data: []byte("1")}}

func get(p *Page, path string, headers ...string) *httptest.ResponseRecorder {
	mux := http.NewServeMux()
	p.Handle(mux)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestFilesAreServedStrictly(t *testing.T) {
	p := New(own, Feed{})
	for path, kind := range map[string]string{
		"/": "text/html; charset=utf-8", "/page/app.js": "text/javascript; charset=utf-8",
		"/page/page.js": "text/javascript; charset=utf-8", "/page/page.css": "text/css; charset=utf-8", "/page/icon.svg": "image/svg+xml",
	} {
		w := get(p, path)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != kind || w.Body.Len() == 0 {
			t.Errorf("%s: %d, %v", path, w.Code, w.Header())
		}
		if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if h := w.Header(); h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
	for _, path := range []string{"/page/none.js", "/page/", "/page/web", "/other"} {
		if w := get(p, path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// fixture is a page whose feed has the events that the test sets.
type fixture struct {
	*testing.T
	page  *Page
	looks atomic.Int32
	now   atomic.Pointer[[]Event]
	all   sync.WaitGroup
	stop  context.CancelFunc
}

func newFixture(t *testing.T) *fixture {
	w := &fixture{T: t}
	w.now.Store(&[]Event{{Name: "a", Data: 1}, {Name: "b", Data: "x\ny"}})
	w.page = New(own, Feed{
		History: func(since time.Time) Event { return Event{Name: "past", Data: since.UnixMilli()} },
		Current: func(context.Context) ([]Event, error) {
			w.looks.Add(1)
			if now := w.now.Load(); now != nil {
				return *now, nil
			}
			return nil, errors.New("busy")
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	w.all.Go(func() { w.page.Run(ctx) })
	return w
}

// stream is a listener's connection, which takes what the test reads of it.
type stream struct {
	*httptest.ResponseRecorder
	texts chan string
	done  <-chan struct{}
}

func (s *stream) Write(b []byte) (int, error) {
	select {
	case s.texts <- string(b):
		return len(b), nil
	case <-s.done:
		return 0, io.ErrClosedPipe
	}
}

var ids = regexp.MustCompile(`id: \d+\n`)

// next is what comes next, without ids; end where the connection is over.
func (s *stream) next() string {
	text, open := <-s.texts
	if !open {
		return "end"
	}
	return ids.ReplaceAllString(text, "")
}

// listen opens the page; leave closes it.
func (w *fixture) listen(headers ...string) (s *stream, leave context.CancelFunc) {
	ctx, leave := context.WithCancel(w.Context())
	s = &stream{httptest.NewRecorder(), make(chan string), ctx.Done()}
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/events", nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w.all.Go(func() {
		w.page.events(s, r)
		close(s.texts)
	})
	return s, leave
}

// expect fails the test unless the texts come next.
func (w *fixture) expect(s *stream, texts ...string) {
	w.Helper()
	for _, want := range texts {
		if got := s.next(); got != want {
			w.Errorf("received %q, want %q", got, want)
		}
	}
}

const (
	past  = "event: past\ndata: -62135596800000\n\n"
	whole = "event: a\ndata: 1\n\nevent: b\ndata: \"x\\ny\"\n\n"
	beat  = ":\n\n"
)

func TestPagesReceiveThePastThenTheStateThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		first, leave := w.listen()
		w.expect(first, past, whole, beat)
		w.now.Store(&[]Event{{Name: "a", Data: 2}, {Name: "b", Data: "x\ny"}})
		w.expect(first, "event: a\ndata: 2\n\n", beat)
		w.now.Store(nil)
		w.expect(first, "event: fault\ndata: \"busy\"\n\n")
		w.now.Store(&[]Event{{Name: "a", Data: 2}})
		w.expect(first, "event: a\ndata: 2\n\n")
		second, leaveToo := w.listen("Last-Event-ID", "1234")
		w.expect(second, "event: past\ndata: 1234\n\n", "event: a\ndata: 2\n\n")
		w.expect(first, beat)
		leave()
		leaveToo()
		w.stop()
		w.all.Wait()
	})
}

func TestChangesAreSentToPagesThatHaveTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		show := func(whole int, changes any) { w.now.Store(&[]Event{{Name: "a", Data: whole, Changes: changes}}) }
		show(1, Unchanged)
		first, leave := w.listen()
		w.expect(first, past, "event: a\ndata: 1\n\n", beat)
		show(12, "+1")
		w.expect(first, "event: a\ndata: \"+1\"\n\n")
		second, leaveToo := w.listen()
		w.expect(second, past, "event: a\ndata: 12\n\n")
		show(20, "+8")
		for _, s := range []*stream{first, second} {
			w.expect(s, "event: a\ndata: \"+8\"\n\n")
		}
		show(20, Unchanged)
		w.expect(first, beat)
		w.expect(second, beat)
		show(20, nil)
		w.expect(first, "event: a\ndata: 20\n\n")
		w.expect(second, "event: a\ndata: 20\n\n")
		leave()
		leaveToo()
		w.stop()
		w.all.Wait()
	})
}

func TestNothingIsMeasuredWithoutSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		time.Sleep(time.Hour)
		if n := w.looks.Load(); n != 0 {
			t.Errorf("%d looks", n)
		}
		for range 100 { // opens and closes: no more looks than the time allows
			s, leave := w.listen()
			w.expect(s, past, whole)
			leave()
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		if n := w.looks.Load(); n != 1 {
			t.Errorf("%d looks for pages that were opened at one instant", n)
		}
		w.stop()
		w.all.Wait()
		if w.page.last != nil {
			t.Error("the last events are kept without a subscriber")
		}
	})
}

func TestTooManyPagesAreRefusedAndSlowOnesDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		var streams []*stream
		for range maxListeners {
			s, leave := w.listen()
			defer leave()
			w.expect(s, past)
			streams = append(streams, s)
		}
		refused, leave := w.listen()
		synctest.Wait()
		leave()
		if refused.Code != http.StatusServiceUnavailable {
			t.Errorf("page %d: %d", maxListeners+1, refused.Code)
		}
		slow := streams[0]
		for range backlog + 3 {
			for _, s := range streams[1:] {
				s.next()
			}
		}
		w.page.mu.Lock()
		if n := len(w.page.listeners); n != maxListeners-1 {
			t.Errorf("%d listeners after one was slow", n)
		}
		w.page.mu.Unlock()
		received := 0
		for slow.next() != "end" {
			received++
		}
		if received > backlog+1 {
			t.Errorf("a page that was dropped received %d more events", received)
		}
		w.stop()
		for _, s := range streams[1:] {
			for s.next() != "end" { // what waits for it, and the end
				continue
			}
		}
		w.all.Wait()
		late, leave := w.listen()
		synctest.Wait()
		leave()
		if late.Code != http.StatusServiceUnavailable {
			t.Errorf("after the end: %d", late.Code)
		}
		w.all.Wait()
	})
}

func TestARingKeepsTheLastInOrder(t *testing.T) {
	r := NewRing[int](3)
	for i, want := range [][]int{{1}, {1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 5}, {4, 5, 6}, {5, 6, 7}} {
		if r.Add(i + 1); !slices.Equal(r.All(), want) {
			t.Errorf("%v, want %v", r.All(), want)
		}
	}
}
