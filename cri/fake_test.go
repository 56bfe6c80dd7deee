package cri

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evictd/evictd/cri/critest"
	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/internal/wire"
)

// socket connects runtimes and those that dial them within a bubble.
type socket chan net.Conn

func (s socket) dial(context.Context, string, bool) (net.Conn, string, error) {
	near, far := net.Pipe()
	select {
	case s <- far:
		return near, "pipe", nil
	default:
		return nil, "pipe", syscall.ECONNREFUSED
	}
}

// listener accepts from a socket until it is closed.
type listener struct {
	socket
	closed chan struct{}
	close  func()
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.socket:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.close(); return nil }
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// serve runs the fake until stop.
func serve(f *critest.Server, s socket) (stop func()) {
	closed := make(chan struct{})
	return f.Serve(&listener{s, closed, sync.OnceFunc(func() { close(closed) })})
}

// received are the messages that a Runtime has sent.
type received struct {
	mu       sync.Mutex
	messages []wire.FromAgent
}

func (h *received) receive(m wire.FromAgent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.messages = append(h.messages, m)
}

// last is the last message that holds.
func (h *received) last(holds func(*wire.FromAgent) bool) *wire.FromAgent {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.messages) - 1; i >= 0; i-- {
		if holds(&h.messages[i]) {
			return &h.messages[i]
		}
	}
	return nil
}

// state is the last state of the runtime.
func (h *received) state() inventory.Runtime {
	if m := h.last(func(m *wire.FromAgent) bool { return m.Runtime != nil }); m != nil {
		return *m.Runtime
	}
	return inventory.Runtime{}
}

func (h *received) await(t *testing.T, what string, holds func(*wire.FromAgent) bool) *wire.FromAgent {
	t.Helper()
	var m *wire.FromAgent
	await(t, what, func() bool { m = h.last(holds); return m != nil })
	return m
}

var await = wait.Until

// listen runs a Runtime on a socket until the test ends.
func listen(t *testing.T, s socket, log slog.Handler) (*Runtime, *received) {
	t.Helper()
	h := &received{}
	r := New(Config{StatsInterval: 10 * time.Second, Dial: s.dial}, h.receive, slog.New(log))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r, h
}

// start runs a fake and a Runtime.
func start(t *testing.T, f *critest.Server) (*Runtime, *received) {
	t.Helper()
	s := make(socket)
	t.Cleanup(serve(f, s))
	return listen(t, s, slog.DiscardHandler)
}
