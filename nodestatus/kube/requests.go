package kube

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evictd/evictd/internal/wire"
)

// Requests counts the requests to the API server and stores their errors.
type Requests struct {
	mu       sync.Mutex
	state    wire.API
	answered time.Time // last, by what is no fault of the API server
	changed  chan struct{}
}

// NewRequests has no requests.
func NewRequests() *Requests {
	return &Requests{
		state:   wire.API{Error: "the API server has not answered yet", Refused: map[string]string{}, Requests: map[string]uint64{}},
		changed: make(chan struct{}, 1),
	}
}

// Wrap is a rest.Config's WrapTransport.
func (r *Requests) Wrap(next http.RoundTripper) http.RoundTripper { return roundTripper{r, next} }

type roundTripper struct {
	*Requests
	next http.RoundTripper
}

func (t roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	switch {
	case err != nil && request.Context().Err() != nil: // cancelled, or too slow
		t.recordAnswer(0, "no answer from the API server: "+request.Context().Err().Error())
	case err != nil:
		t.recordAnswer(0, "no answer from the API server: "+err.Error())
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusUnauthorized:
		t.recordAnswer(response.StatusCode, "the API server answers "+response.Status)
	default:
		t.recordAnswer(response.StatusCode, "")
	}
	return response, err
}

func (r *Requests) recordAnswer(code int, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Requests[strconv.Itoa(code)]++
	if connected := fault == ""; connected != r.state.Connected || r.state.Since.IsZero() {
		r.state.Connected, r.state.Since = connected, time.Now()
		r.notify()
	}
	r.state.Error = fault
	if fault == "" {
		r.answered = time.Now()
	}
}

// answeredSince says whether the API server has answered any request since a time.
func (r *Requests) answeredSince(at time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answered.After(at)
}

// record stores whether the API server forbids a kind of request. Errors other than 403
// change nothing.
func (r *Requests) record(what string, err error) (refused bool) {
	refused = apierrors.IsForbidden(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, was := r.state.Refused[what]
	switch {
	case refused && before != err.Error():
		r.state.Refused[what] = err.Error()
		r.notify()
	case err == nil && was:
		delete(r.state.Refused, what)
		r.notify()
	}
	return refused
}

func (r *Requests) conflict(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Conflict = text
	r.notify()
}

// notify is called with the lock held.
func (r *Requests) notify() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// api is a copy of the state.
func (r *Requests) api() *wire.API {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.state
	state.Refused, state.Requests = maps.Clone(state.Refused), maps.Clone(state.Requests)
	return &state
}
