package embeddedapi

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evictd/evictd/internal/embeddedapi/store"
)

// serveEvent and receiveEvent convert between the two versions of an event, as
// Kubernetes' conversions of events.k8s.io/v1 do.
func serveEvent(o store.Object) store.Object {
	e := o.(*v1.Event)
	served := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, Regarding: e.InvolvedObject, Related: e.Related, Note: e.Message, Type: e.Type,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp, DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
	}
	if e.Series != nil {
		served.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	served.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return served
}

func receiveEvent(o store.Object) store.Object {
	e := o.(*eventsv1.Event)
	received := &v1.Event{
		ObjectMeta: e.ObjectMeta, EventTime: e.EventTime,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
		Action: e.Action, Reason: e.Reason, InvolvedObject: e.Regarding, Related: e.Related, Message: e.Note, Type: e.Type,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp, LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
	}
	if e.Series != nil {
		received.Series = &v1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	received.SetGroupVersionKind(core.WithKind("Event"))
	return received
}

// maxNote is how long the note of an event may be, in bytes.
const maxNote = 1024

// admitEvent validates a new event of events.k8s.io/v1.
func admitEvent(_ *API, object, old store.Object) (faults utilvalidation.ErrorList) {
	if old != nil {
		return nil
	}
	e := object.(*v1.Event)
	for _, required := range []struct {
		field string
		given bool
	}{
		{"eventTime", !e.EventTime.IsZero()}, {"reportingController", e.ReportingController != ""}, {"reportingInstance", e.ReportingInstance != ""},
		{"action", e.Action != ""}, {"reason", e.Reason != ""},
	} {
		if !required.given {
			faults = append(faults, utilvalidation.Required(utilvalidation.NewPath(required.field), ""))
		}
	}
	if len(e.Message) > maxNote {
		faults = append(faults, utilvalidation.TooLong(utilvalidation.NewPath("note"), "", maxNote))
	}
	if types := []string{v1.EventTypeNormal, v1.EventTypeWarning}; !slices.Contains(types, e.Type) {
		faults = append(faults, utilvalidation.NotSupported(utilvalidation.NewPath("type"), e.Type, types))
	}
	return faults
}
