package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// serve runs one agent until it ends or ctx does.
func (a *Agent) serve(ctx context.Context) error {
	process, err := start(&a.cfg)
	if err != nil {
		return err
	}
	if process.command == nil {
		a.log.Info("the service manager has been asked for an agent", "address", a.cfg.Address)
	} else {
		a.log.Info("the agent runs", "pid", process.command.Process.Pid, "user", a.cfg.User.String())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A send that the agent does not read ends with ctx.
	context.AfterFunc(ctx, func() { process.conn.Close() })
	var running sync.WaitGroup
	running.Go(func() { cancel(a.send(ctx, process.conn)) })
	if process.dials != nil {
		running.Go(func() { _ = wire.ServeDials(process.dials, a.cfg.Runtime) }) // until the line closes
	}
	cancel(a.receive(process.conn))
	process.end()
	running.Wait()
	return context.Cause(ctx)
}

// send sends what the outbox holds, until a send fails or ctx ends.
func (a *Agent) send(ctx context.Context, conn *wire.Evictd) error {
	a.mu.Lock()
	a.running = true
	a.out.resend()
	a.notify()
	a.mu.Unlock()
	var changed <-chan struct{}
	if a.cfg.Node.Publish {
		changed = a.evictions.Changed()
	}
	for all := true; ; all = false {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.wake:
		case <-changed:
		}
		var intents []wire.Intent
		if a.cfg.Node.Publish {
			intents = a.evictions.Unsent(all)
		}
		a.mu.Lock()
		messages := a.out.take(&a.cfg.Node, intents)
		a.mu.Unlock()
		for _, m := range messages {
			if err := conn.Send(m); err != nil {
				return err
			}
		}
	}
}

func (a *Agent) receive(conn *wire.Evictd) error {
	for held := newBudget(); ; {
		m, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			return errors.New("it has closed the connection")
		}
		if err != nil {
			return fmt.Errorf("receive from the agent: %w", err)
		}
		if !held.allows(&m, conn.Received()) {
			if !held.full {
				held.full = true
				a.log.Error("the agent has more pods, containers or images than evictd holds: the others are not known", "bytes", maxHeld)
			}
			continue
		}
		a.handle(&m)
	}
}

// handle handles one message.
func (a *Agent) handle(m *wire.FromAgent) {
	if r := m.EvictionResponse; r != nil && r.Withdrawn {
		a.forgetWithdrawn(r.UID)
		return
	}
	if m.EvictionResponse != nil {
		select {
		case a.answers <- *m.EvictionResponse:
		default: // the request is sent and answered again
		}
		return
	}
	if m.Done != nil {
		a.finishOrder(m.Done)
		return
	}
	if m.Reported != "" {
		a.reported(m.Reported)
		return
	}
	if m.Evicted != nil {
		if a.cfg.Evicted != nil {
			a.cfg.Evicted(*m.Evicted)
		}
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case m.Pod != nil && m.Pod.UID != "":
		a.change(func(pods map[types.UID]*v1.Pod) { pods[m.Pod.UID] = m.Pod })
	case m.Deleted != "":
		a.change(func(pods map[types.UID]*v1.Pod) { delete(pods, m.Deleted) })
	case m.Synced:
		if a.incoming != nil {
			a.pods, a.incoming = a.keep(a.incoming), nil
			if a.first == nil {
				a.first = make(map[types.UID]bool, len(a.pods))
				for uid := range a.pods {
					a.first[uid] = true
				}
			}
			a.change(func(map[types.UID]*v1.Pod) {})
		}
	case m.API != nil:
		a.api = *m.API
	case m.Runc != nil:
		a.runc = m.Runc.Containers
		a.signal()
	default:
		a.handleRuntime(m)
	}
}

// keep replaces pods by the known ones of the same version: pointers compare equal.
func (a *Agent) keep(pods map[types.UID]*v1.Pod) map[types.UID]*v1.Pod {
	for uid, pod := range pods {
		if known := a.pods[uid]; known != nil && known.ResourceVersion == pod.ResourceVersion {
			pods[uid] = known
		}
	}
	return pods
}

// change is called with the lock held.
func (a *Agent) change(pods func(map[types.UID]*v1.Pod)) {
	if a.incoming != nil {
		pods(a.incoming)
		return
	}
	pods(a.pods)
	a.listed = nil
	a.signal()
}

// reported handles an eviction of which nothing is to be sent any more, and forgets its pod if
// the status of that is terminal.
func (a *Agent) reported(id string) {
	t, ok := a.evictions.Reported(id)
	if !ok {
		return
	}
	if t.Ended.IsZero() && a.cfg.Gone != nil {
		a.cfg.Gone(t)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.change(func(pods map[types.UID]*v1.Pod) {
		maps.DeleteFunc(pods, func(uid types.UID, pod *v1.Pod) bool {
			return uid == t.UID && (pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded)
		})
	})
}
