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

// Requests watches what is asked of the API server, and what comes of it.
type Requests struct {
	mu      sync.Mutex
	state   wire.API
	changed chan struct{}
}

// NewRequests has seen none.
func NewRequests() *Requests {
	return &Requests{
		state:   wire.API{Error: "the API server was not reached yet", Refused: map[string]string{}, Requests: map[string]uint64{}},
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
	case err != nil && request.Context().Err() != nil: // given up, or too slow
		t.answered(0, "no answer from the API server: "+request.Context().Err().Error())
	case err != nil:
		t.answered(0, "no answer from the API server: "+err.Error())
	case response.StatusCode >= http.StatusInternalServerError || response.StatusCode == http.StatusUnauthorized:
		t.answered(response.StatusCode, "the API server answers "+response.Status)
	default:
		t.answered(response.StatusCode, "")
	}
	return response, err
}

func (r *Requests) answered(code int, fault string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Requests[strconv.Itoa(code)]++
	if connected := fault == ""; connected != r.state.Connected || r.state.Since.IsZero() {
		r.state.Connected, r.state.Since = connected, time.Now()
		r.tell()
	}
	r.state.Error = fault
}

// judge remembers whether the API server lets us do something, and says whether
// it does not. Other errors say nothing about that.
func (r *Requests) judge(what string, err error) (refused bool) {
	refused = apierrors.IsForbidden(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	before, was := r.state.Refused[what]
	switch {
	case refused && before != err.Error():
		r.state.Refused[what] = err.Error()
		r.tell()
	case err == nil && was:
		delete(r.state.Refused, what)
		r.tell()
	}
	return refused
}

func (r *Requests) conflict(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.state.Conflict = text
	r.tell()
}

// tell is called with the lock held.
func (r *Requests) tell() {
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
