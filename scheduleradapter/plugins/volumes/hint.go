package volumes

import (
	"fmt"

	"github.com/evictd/evictd/scheduleradapter/framework"
)

// now is the new object of an event.
func now[T any](o *framework.Occurrence) (T, error) { return as[T](o.Event, o.Object) }

// before is the old object of an event; zero after an addition.
func before[T any](o *framework.Occurrence) (was T, err error) {
	if o.OldObject == nil {
		return was, nil
	}
	return as[T](o.Event, o.OldObject)
}

func as[T any](e framework.Event, object any) (T, error) {
	typed, ok := object.(T)
	if !ok {
		return typed, fmt.Errorf("event %s is about a %T", e, object)
	}
	return typed, nil
}

func queueIf(helps bool) (framework.Hint, error) {
	if helps {
		return framework.Queue, nil
	}
	return framework.QueueSkip, nil
}
