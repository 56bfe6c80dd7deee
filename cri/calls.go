package cri

import (
	"context"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/evictd/evictd/cri/inventory"
)

// callTimeout bounds a call that has no deadline of its own.
const callTimeout = 10 * time.Second

// calls counts the calls of the runtime, gives each a deadline, and remembers the
// methods that the runtime does not implement.
type calls struct {
	mu      sync.Mutex
	counts  map[string]inventory.Call
	missing map[string]bool
}

func newCalls() *calls {
	return &calls{counts: map[string]inventory.Call{}, missing: map[string]bool{}}
}

// intercept is a grpc.UnaryClientInterceptor.
func (c *calls) intercept(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	name := path.Base(method)
	if c.isMissing(name) {
		return status.Errorf(codes.Unimplemented, "%s is not implemented", name)
	}
	if _, set := ctx.Deadline(); !set {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	start := time.Now()
	err := invoke(ctx, method, request, reply, conn, options...)
	c.record(name, time.Since(start), err)
	return err
}

func (c *calls) record(name string, took time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.counts[name]
	count.Count++
	count.Seconds += took.Seconds()
	if code := status.Code(err); code != codes.OK {
		if count.Errors = maps.Clone(count.Errors); count.Errors == nil {
			count.Errors = map[string]uint64{}
		}
		count.Errors[code.String()]++
		c.missing[name] = c.missing[name] || code == codes.Unimplemented
	}
	c.counts[name] = count
}

func (c *calls) isMissing(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing[name]
}

// clearMissing has every method called again: another runtime may answer.
func (c *calls) clearMissing() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.missing)
}

// copyTo copies the counts and the missing methods into the status.
func (c *calls) copyTo(r *inventory.Runtime) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Calls = maps.Clone(c.counts)
	r.Missing = nil
	for _, name := range slices.Sorted(maps.Keys(c.missing)) {
		if c.missing[name] {
			r.Missing = append(r.Missing, name)
		}
	}
}
