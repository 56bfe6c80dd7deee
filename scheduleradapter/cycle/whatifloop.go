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

// searchedRows bounds the rows that eachRow visits at a time.
const searchedRows = 4096

// eachRow visits the rows of the table in runs of the loop's goroutine, until visit
// returns false. Other goroutines call it. The error is that of the context.
func (l *Loop) eachRow(ctx context.Context, visit func(nodetable.Row) bool) (err error) {
	for begin, more := 0, true; more && err == nil; begin += searchedRows {
		more, err = Ask(ctx, l, func() bool {
			end := min(begin+searchedRows, l.Table.Rows())
			for row := begin; row < end; row++ {
				if !visit(nodetable.Row(row)) {
					return false
				}
			}
			return end < l.Table.Rows()
		})
	}
	return err
}

// PriorityClass is a class as the pods on nodes that name it have it; nil: there are none.
// Other goroutines call it. The error is that of the context.
func (l *Loop) PriorityClass(ctx context.Context, name string) (class *schedulingv1.PriorityClass, err error) {
	err = l.eachRow(ctx, func(row nodetable.Row) bool {
		for _, pod := range l.Table.PodsOn(row) {
			if spec := &pod.Object.Spec; spec.PriorityClassName == name && spec.Priority != nil {
				class = &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: *spec.Priority}
				class.PreemptionPolicy = new(ptr.Deref(spec.PreemptionPolicy, v1.PreemptLowerPriority))
				return false
			}
		}
		return true
	})
	return class, err
}

// Nodes are the nodes of the table with their names, labels and taints. Other goroutines
// call it. The error is that of the context.
func (l *Loop) Nodes(ctx context.Context) (nodes []*v1.Node, err error) {
	err = l.eachRow(ctx, func(row nodetable.Row) bool {
		if !l.Table.Alive().Has(row) {
			return true
		}
		node := l.Table.Node(row)
		object := *node.OwnObject()
		object.Spec.Taints = nil
		for _, taint := range node.Taints {
			object.Spec.Taints = append(object.Spec.Taints, v1.Taint{Key: taint.Key.Value(), Value: taint.Value.Value(), Effect: taint.Effect})
		}
		nodes = append(nodes, &object)
		return true
	})
	return nodes, err
}

// HasProfile reports whether a profile has a name. Any goroutine may call it.
func (l *Loop) HasProfile(name string) bool {
	_, found := l.profiles[name]
	return found
}
