package cri

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/wire"
)

// errLost says that the runtime has closed the connection.
var errLost = errors.New("the container runtime has closed the connection")

// answerTimeout is how long a runtime that has left a call without an answer may take to answer any other. With
// callTimeout it is less than a reclaim may take, which waits for a runtime that is known to be away.
const answerTimeout = 5 * time.Second

// session uses one connection. Each of its tasks asks the runtime for one thing, beside the
// others, so that a method that hangs or fails takes nothing else with it. The goroutine of
// Run starts the tasks and applies what they have found.
type session struct {
	*Runtime
	c       *client
	results chan result
	running sync.WaitGroup
	events  bool       // the runtime sends container events
	ended   chan error // the container events
	listed  bool       // each list was asked for once
	// silent receives answerTimeout after silence, the error of a task that had no answer in time, unless
	// another task has succeeded meanwhile.
	silent  <-chan time.Time
	silence error

	version, config, sandboxes, containers, images, layers, disks task
}

// task is one thing that is asked of the runtime. The goroutine of Run owns it.
type task struct {
	// prepare runs on the goroutine of Run, ask beside it, and apply on the goroutine of Run again.
	prepare func() (ask func(context.Context) (apply func(), err error))
	running bool
	again   bool  // it is started again when it ends
	tried   bool  // it has ended once
	err     error // of its last run
	began   time.Time
}

// result is what a task has found.
type result struct {
	*task
	apply func()
	err   error
}

func (r *Runtime) newSession(c *client) *session {
	r.calls.clearMissing()
	s := &session{Runtime: r, c: c, ended: make(chan error, 1)}
	s.version.prepare, s.config.prepare = s.askVersion, s.askConfig
	s.sandboxes.prepare, s.containers.prepare, s.images.prepare = s.listSandboxes, s.listContainers, s.listImages
	s.layers.prepare, s.disks.prepare = s.measureLayers, s.measureDisks
	s.results = make(chan result, len(s.tasks()))
	return s
}

func (s *session) lists() []*task { return []*task{&s.sandboxes, &s.containers, &s.images} }

func (s *session) tasks() []*task {
	return append(s.lists(), &s.version, &s.config, &s.layers, &s.disks)
}

// run returns when the connection is lost, or no task succeeds any more.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.running.Wait()
	defer cancel()
	defer s.setClient(nil)
	poll, measure := time.NewTimer(pollPeriod), time.NewTicker(s.cfg.StatsInterval)
	defer poll.Stop()
	defer measure.Stop()
	s.start(ctx, append(s.lists(), &s.version, &s.config, &s.disks)...)
	var settled <-chan time.Time
	list := func() {
		s.restart(ctx, s.lists()...)
		poll.Reset(map[bool]time.Duration{true: eventPeriod, false: pollPeriod}[s.events])
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.c.lost:
			return errLost
		case err := <-s.ended: // the runtime is polled, and asked for events with its version again
			s.events = false
			s.note(eventMethod, err)
			list()
		case found := <-s.results:
			if err := s.finish(ctx, found); err != nil {
				return err
			}
		case <-s.silent:
			return fmt.Errorf("it answers no call: %w", s.silence)
		case <-poll.C:
			list()
		case <-measure.C:
			s.start(ctx, &s.layers, &s.disks, &s.version)
			if s.config.err != nil { // what is configured changes with the process alone
				s.start(ctx, &s.config)
			}
		case <-s.refresh:
			s.restart(ctx, &s.layers, &s.disks)
			list()
		case <-s.changed:
			if settled == nil {
				settled = time.After(settle)
			}
		case <-settled:
			settled = nil
			list()
		}
	}
}

// start starts the tasks that do not run. Layers are measured once the containers are known.
func (s *session) start(ctx context.Context, tasks ...*task) {
	for _, t := range tasks {
		if t.running || t == &s.layers && !s.listed {
			continue
		}
		t.running, t.began = true, time.Now()
		ask := t.prepare()
		s.running.Go(func() {
			apply, err := ask(ctx)
			s.results <- result{t, apply, err}
		})
	}
}

// restart starts the tasks, those that run when they have ended.
func (s *session) restart(ctx context.Context, tasks ...*task) {
	for _, t := range tasks {
		t.again = t.running
	}
	s.start(ctx, tasks...)
}

// finish applies what a task has found. The error ends the session.
func (s *session) finish(ctx context.Context, found result) error {
	t := found.task
	t.running, t.tried, t.err = false, true, found.err
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.c.lost: // which says nothing of the method
		return errLost
	default:
	}
	found.apply()
	if err := s.failed(); err != nil {
		return err
	}
	if t.err == nil {
		s.silent = nil
	} else if time.Since(t.began) >= callTimeout { // do the other methods still answer?
		if s.silent == nil {
			s.silent, s.silence = time.After(answerTimeout), t.err
		}
		for _, other := range s.tasks() {
			if other != t {
				s.start(ctx, other)
			}
		}
	}
	if t.again {
		t.again = false
		s.start(ctx, t)
	}
	if !s.listed && s.version.tried && s.sandboxes.tried && s.containers.tried && s.images.tried {
		s.listed = true
		s.send(wire.FromAgent{Listed: true})
		s.setClient(s.c)
		s.connected()
		s.start(ctx, &s.layers)
	}
	if s.listed { // evictd finds its disks in the status, and what can be removed of them in the lists
		s.sendStatus()
	}
	return nil
}

// failed is the error of a runtime that answers nothing: of its version, or else of another task.
func (s *session) failed() error {
	err := s.version.err
	for _, t := range s.tasks() {
		if t.tried && t.err == nil || !t.tried && t != &s.layers {
			return nil
		}
		if err == nil {
			err = t.err
		}
	}
	return fmt.Errorf("ask the container runtime for its version: %w", err)
}

// askVersion asks for the runtime's name and version.
func (s *session) askVersion() func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		version, err := s.c.Version(ctx, &cri.VersionRequest{})
		return func() {
			s.note("Version", err)
			if err != nil {
				return
			}
			s.status.Name, s.status.Version = version.RuntimeName, version.RuntimeVersion
			s.follow(ctx)
		}, err
	}
}

// follow follows container events where the runtime has them.
func (s *session) follow(ctx context.Context) {
	if s.events || !broadcasts(s.status.Name, s.status.Version) || s.calls.isMissing(eventMethod) {
		return
	}
	s.events = true
	s.running.Go(func() {
		s.ended <- s.receiveEvents(ctx, s.c)
	})
}

// askConfig asks for the image of sandboxes, which the verbose status of containerd has.
func (s *session) askConfig() func(context.Context) (func(), error) {
	return func(ctx context.Context) (func(), error) {
		answer, err := s.c.Status(ctx, &cri.StatusRequest{Verbose: true})
		return func() {
			s.note("Status", err)
			if err == nil {
				s.content.sandboxImage = sandboxImage(answer.GetInfo()["config"])
			}
		}, err
	}
}
