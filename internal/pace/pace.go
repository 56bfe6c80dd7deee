// Package pace bounds the requests of client-go's reflectors.
package pace

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// ListWatch bounds how often a reflector begins a list or a watch: client-go begins a watch that was answered by
// 410 Gone again at once, and as often as the server has it.
type ListWatch struct {
	*cache.ListWatch
	pace *rate.Limiter
}

// Of begins ten lists and watches of a source at once, and then one a second.
func Of(source *cache.ListWatch) ListWatch {
	return ListWatch{source, rate.NewLimiter(rate.Every(time.Second), 10)}
}

// ListWithContext lists a page.
func (l ListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		if err := l.pace.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return l.ListWatch.ListWithContext(ctx, options)
}

// WatchWithContext watches.
func (l ListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := l.pace.Wait(ctx); err != nil {
		return nil, err
	}
	return l.ListWatch.WatchWithContext(ctx, options)
}
