package kube

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/internal/wire"
)

const (
	reporter = "evictd.io/evictd"
	// maxNote bounds an event's note, bytes (events.k8s.io/v1).
	maxNote = 1024
	// maxEvents bounds the events that wait for the API server, and forbiddenEvents how long
	// an event is sent again that the API server forbids.
	maxEvents       = 256
	forbiddenEvents = time.Minute
	// maxRegarding leaves room in an event's name, bytes.
	maxRegarding = 200
)

// event is an event that was not sent yet.
type event struct {
	regarding          v1.ObjectReference
	kind, reason, note string
	action             string
	at                 time.Time
	annotations        map[string]string
	queued             time.Time
}

// event converts an event about a pod, or about the node, which has its name as uid
// as with the kubelet.
func (p *Publisher) event(e *wire.Event) event {
	regarding := podReference(e.Pod)
	if e.Pod == (wire.PodName{}) {
		regarding = v1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: p.node.Name, UID: types.UID(p.node.Name)}
	}
	return event{regarding: regarding, kind: e.Type, reason: e.Reason, note: e.Note, action: e.Action, at: e.At}
}

func (p *Publisher) conflictEvent(note string) event {
	return p.event(&wire.Event{At: time.Now(), Type: v1.EventTypeWarning, Reason: "EvictionManagerConflict", Action: "Yielding", Note: note})
}

func evictedEvent(i *wire.Intent) event {
	return event{regarding: victimReference(i), kind: v1.EventTypeWarning, reason: eviction.ReasonEvicted, note: strings.TrimPrefix(i.Message, eviction.RejectedMessage), action: "Evicting", at: i.Decided, annotations: i.Annotations}
}

// overriddenEvent says why a pod is evicted without the Eviction API.
func overriddenEvent(i *wire.Intent) event {
	return event{regarding: victimReference(i), kind: v1.EventTypeWarning, reason: "EvictionRequestOverridden", note: i.Override, action: "Evicting", at: i.Decided}
}

// overdueEvent is the kubelet's event for a pod that outlives its grace period.
func overdueEvent(i *wire.Intent) event {
	return event{
		regarding: victimReference(i), kind: v1.EventTypeWarning, reason: "ExceededGracePeriod", action: "Killing", at: i.Decided,
		note: "Container runtime did not kill the pod within specified grace period.",
	}
}

func podReference(p wire.PodName) v1.ObjectReference {
	return v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func victimReference(i *wire.Intent) v1.ObjectReference {
	return podReference(wire.PodName{UID: i.UID, Namespace: i.Namespace, Name: i.Name})
}

// enqueue is called with the lock held. It drops the oldest of too many events.
func (p *Publisher) enqueue(e event) {
	e.queued = time.Now()
	p.queue = append(p.queue, e)
	p.queue = p.queue[max(0, len(p.queue)-maxEvents):]
	p.events.trigger()
}

// reportEvents creates the queued events in order. The name of an event is a hash of
// its content: a repeated event is the same object.
func (p *Publisher) reportEvents(ctx context.Context) error {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.mu.Unlock()
			return nil
		}
		e := p.queue[0]
		p.mu.Unlock()
		object := e.object(p.node.Name)
		_, err := p.client.EventsV1().Events(object.Namespace).Create(ctx, object, metav1.CreateOptions{})
		refused := p.requests.record("events", err) && time.Since(e.queued) > forbiddenEvents
		hopeless := apierrors.IsAlreadyExists(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || refused
		if err != nil && !hopeless {
			return fmt.Errorf("create event %s of %s %s: %w", e.reason, e.regarding.Kind, e.regarding.Name, err)
		}
		p.mu.Lock()
		if len(p.queue) > 0 && same(p.queue[0], e) {
			p.queue = p.queue[1:]
		}
		p.mu.Unlock()
	}
}

// same says whether the head of the queue is still the event that was sent.
func same(a, b event) bool { return a.name() == b.name() }

func (e *event) name() string {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%s %s %d %s", e.regarding.UID, e.reason, e.at.UnixNano(), e.note)
	name := e.regarding.Name
	return fmt.Sprintf("%s.%016x", name[:min(len(name), maxRegarding)], sum.Sum64())
}

func (e *event) object(instance string) *events.Event {
	namespace := e.regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &events.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: e.name(), Annotations: e.annotations},
		EventTime:  metav1.NewMicroTime(e.at), ReportingController: reporter, ReportingInstance: instance,
		Action: e.action, Reason: e.reason, Regarding: e.regarding, Note: shorten(e.note), Type: e.kind,
	}
}

// shorten cuts a note at a character boundary.
func shorten(note string) string {
	if len(note) <= maxNote {
		return note
	}
	end := maxNote
	for !utf8.RuneStart(note[end]) {
		end--
	}
	return note[:end]
}
