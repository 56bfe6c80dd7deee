package cycle

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
)

// WhatIf tries the pods of a question on the cluster as it is now, in runs of the loop's
// goroutine, and changes nothing. Between two runs the loop works for as long as the run
// took, or until an extender has answered. Other goroutines call it. The error is that of
// the context.
func (l *Loop) WhatIf(ctx context.Context, q Question) (WhatIf, error) {
	end := time.Now().Add(WhatIfTime)
	work, cancel := context.WithDeadline(ctx, end)
	defer cancel() // ends the requests
	var t *trial
	type run struct {
		took     time.Duration
		answered func() // nil: the run is not suspended
	}
	for {
		r, err := Ask(ctx, l, func() run {
			if t == nil {
				t = newTrial(l.Scheduler, work, q)
			}
			begin := time.Now()
			t.run(l.now(), func() bool { return time.Since(begin) < WhatIfRun })
			answered, suspended := t.attempt.Suspended()
			if suspended {
				t.attempt.Resume()
			}
			return run{time.Since(begin), answered}
		})
		switch {
		case err != nil:
			return WhatIf{}, err
		case t.done():
		case r.answered != nil:
			r.answered()
		default:
			pause(work, r.took)
		}
		if t.done() || !time.Now().Before(end) {
			return t.answer(), nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// searchedRows bounds the rows that PriorityClass searches at a time.
const searchedRows = 4096

// PriorityClass is a class as the pods on nodes that name it have it; nil: there are none.
// Other goroutines call it. The error is that of the context.
func (l *Loop) PriorityClass(ctx context.Context, name string) (class *schedulingv1.PriorityClass, err error) {
	for begin, more := 0, true; class == nil && more; begin += searchedRows {
		more, err = Ask(ctx, l, func() bool {
			end := min(begin+searchedRows, l.Table.Rows())
			for row := nodetable.Row(begin); int(row) < end && class == nil; row++ {
				for _, pod := range l.Table.PodsOn(row) {
					if spec := &pod.Object.Spec; spec.PriorityClassName == name && spec.Priority != nil {
						class = &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: *spec.Priority}
						class.PreemptionPolicy = new(ptr.Deref(spec.PreemptionPolicy, v1.PreemptLowerPriority))
						break
					}
				}
			}
			return end < l.Table.Rows()
		})
		if err != nil {
			return nil, err
		}
	}
	return class, nil
}

// HasProfile reports whether a profile has a name. Any goroutine may call it.
func (l *Loop) HasProfile(name string) bool {
	_, found := l.profiles[name]
	return found
}
