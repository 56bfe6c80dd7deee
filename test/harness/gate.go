package harness

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// Gate passes connections on to an address while it is open, as it is at first.
type Gate struct {
	Address string // of the gate

	network, to   string
	mu            sync.Mutex
	open          bool
	passing       map[net.Conn]bool
	silenced      map[net.Conn]bool // they stay open
	listener      net.Listener
	serving, busy sync.WaitGroup
}

// NewGate listens at an address, and passes connections to another in the same network.
func NewGate(t testing.TB, network, at, to string) *Gate {
	t.Helper()
	listener, err := net.Listen(network, at)
	require.NoError(t, err)
	if network == "unix" {
		require.NoError(t, os.Chmod(at, 0o666))
	}
	g := &Gate{Address: listener.Addr().String(), network: network, to: to, open: true, passing: map[net.Conn]bool{}, silenced: map[net.Conn]bool{}, listener: listener}
	g.serving.Go(g.serve)
	t.Cleanup(func() {
		g.Set(false)
		listener.Close()
		g.serving.Wait()
		g.busy.Wait()
	})
	return g
}

// Set opens the gate, or closes it and cuts the connections that pass.
func (g *Gate) Set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
	for conn := range g.passing {
		if !open {
			conn.Close()
		}
	}
}

func (g *Gate) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		g.busy.Go(func() { g.pass(conn) })
	}
}

func (g *Gate) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial(g.network, g.to)
	if err != nil {
		return
	}
	defer to.Close()
	if !g.enter(from, to) {
		return
	}
	defer g.leave(from, to)
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, g.unlessSilenced(from, to))
		from.Close()
	})
	_, _ = io.Copy(to, g.unlessSilenced(from, from))
	to.Close()
	back.Wait()
}

// Silence drops from now on what the connections send that pass now, in both directions, and leaves
// them open. New connections pass.
func (g *Gate) Silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.passing {
		g.silenced[conn] = true
	}
}

// unlessSilenced reads a direction of a connection until the connection is silenced, and then drops what
// it reads.
func (g *Gate) unlessSilenced(conn net.Conn, direction io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		for {
			n, err := direction.Read(p)
			g.mu.Lock()
			silent := g.silenced[conn]
			g.mu.Unlock()
			if !silent {
				return n, err
			}
			if err != nil {
				return 0, err
			}
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (g *Gate) enter(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		g.passing[c] = g.open
	}
	return g.open
}

func (g *Gate) leave(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		delete(g.passing, c)
		delete(g.silenced, c)
	}
}
