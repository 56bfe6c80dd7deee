package cri

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// inspectors is how many objects are asked for at the same time, each for at most objectTimeout,
	// and all of them together for at most eachTimeout.
	inspectors    = 8
	objectTimeout = 5 * time.Second
	eachTimeout   = 8 * time.Second
	// An object that could not be read is read again after retryDetail, then after twice as
	// long each time, up to maxRetryDetail.
	retryDetail    = 15 * time.Second
	maxRetryDetail = 2 * time.Minute
)

// answer is the value that was read of an object, or the error of reading it.
type answer[T any] struct {
	value T
	err   error
}

// each reads objects, several at a time, and returns the answers by index. An object that there was no
// time for has none.
func each[T, U any](ctx context.Context, objects []T, read func(context.Context, T) (U, error)) map[int]answer[U] {
	answers := map[int]answer[U]{}
	var mu sync.Mutex
	var running sync.WaitGroup
	jobs := make(chan int)
	for range min(inspectors, len(objects)) {
		running.Go(func() {
			for i := range jobs {
				ctx, cancel := context.WithTimeout(ctx, objectTimeout)
				value, err := read(ctx, objects[i])
				cancel()
				mu.Lock()
				answers[i] = answer[U]{value, err}
				mu.Unlock()
			}
		})
	}
	ends := time.NewTimer(eachTimeout)
	defer ends.Stop()
	for i := range objects {
		select {
		case jobs <- i:
			continue
		case <-ends.C:
		case <-ctx.Done():
		}
		break
	}
	close(jobs)
	running.Wait()
	return answers
}

// failures sums up the objects that could not be read, except for those that are gone; nil if there are none.
func failures(details map[string]detail) error {
	var failed []string
	for id, d := range details {
		if d.err != nil && status.Code(d.err) != codes.NotFound {
			failed = append(failed, id)
		}
	}
	if len(failed) == 0 {
		return nil
	}
	first := slices.Min(failed)
	return fmt.Errorf("%d of %d objects, such as %s: %w", len(failed), len(details), first, details[first].err)
}
