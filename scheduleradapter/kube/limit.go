package kube

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Bounds of concurrent bindings. Up to firstLimit, which is the limit at the start, each
// answer in time raises the limit; beyond it, only a fast one.
const (
	leastLimit = 8
	firstLimit = 128
	mostLimit  = 1024

	fastAnswer = 100 * time.Millisecond
	// slowAnswer is Kubernetes' objective for 99 of 100 calls that change an object.
	slowAnswer = time.Second
	// A slow answer that takes slowFactor times the average shows that the server has more
	// requests than it can process; otherwise it is always as slow.
	slowFactor = 2
	averaged   = 64 // answers, in the moving average
)

// limit bounds concurrent requests by the server's answers: while all places are in use,
// as many answers as there are places raise it by one; a refusal, an answer of the server
// that it is overloaded, a lost connection, or an answer that is much later than usual
// halves it, once for the requests that were under way together.
type limit struct {
	mu      sync.Mutex
	places  float64
	running int
	waiting []chan struct{} // each is closed when it has a place
	halved  time.Time
	average time.Duration // from a request to its answer
}

func newLimit() *limit { return &limit{places: firstLimit} }

// do calls a function when there is a place. The answers that the client retries are
// those of SeeRefusals.
func (l *limit) do(ctx context.Context, request func(context.Context) error) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	begin := time.Now()
	err := request(context.WithValue(ctx, refusedKey{}, func() { l.halve(begin) }))
	l.leave(begin, time.Since(begin), isOverload(err) && ctx.Err() == nil)
	return err
}

func (l *limit) enter(ctx context.Context) error {
	l.mu.Lock()
	if l.running < int(l.places) && len(l.waiting) == 0 {
		l.running++
		l.mu.Unlock()
		return nil
	}
	place := make(chan struct{})
	l.waiting = append(l.waiting, place)
	l.mu.Unlock()
	select {
	case <-place:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.waiting, place); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	} else { // it has a place since
		l.running--
		l.admit()
	}
	return ctx.Err()
}

func (l *limit) leave(begin time.Time, took time.Duration, overload bool) {
	if overload {
		l.halve(begin)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	late := took > slowAnswer && took > slowFactor*l.average
	l.average += (took - l.average) / averaged
	switch {
	case overload:
	case late:
		l.halveLocked(begin)
	case l.running >= int(l.places) && (l.places < firstLimit || took < fastAnswer):
		l.places = min(l.places+1/l.places, mostLimit)
	}
	l.running--
	l.admit()
}

// admit gives free places to those that wait; l.mu is held.
func (l *limit) admit() {
	n := min(int(l.places)-l.running, len(l.waiting))
	if n <= 0 {
		return
	}
	for _, place := range l.waiting[:n] {
		close(place)
	}
	l.waiting = l.waiting[n:]
	l.running += n
}

// halve halves the limit, unless it has been since the request began.
func (l *limit) halve(begin time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halveLocked(begin)
}

func (l *limit) halveLocked(begin time.Time) {
	if begin.Before(l.halved) {
		return
	}
	l.places, l.halved = max(l.places/2, leastLimit), time.Now()
}

// isOverload reports whether an error is about the server or the way to it, and not about
// the object.
func isOverload(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	return !errors.As(err, &status) || refuses(int(status.Status().Code))
}

func refuses(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// refusedKey is the key of a request's function that is called for each refusal.
type refusedKey struct{}

// SeeRefusals has the Writer see the answers with 429 or 5xx that the client retries.
func SeeRefusals(restConfig *rest.Config) {
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(request)
			if err == nil && refuses(response.StatusCode) {
				if refused, ok := request.Context().Value(refusedKey{}).(func()); ok {
					refused()
				}
			}
			return response, err
		})
	})
}
