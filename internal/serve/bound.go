package serve

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// bounded is a listener with a bound of open connections.
type bounded struct {
	net.Listener
	most int

	mu    sync.Mutex
	open  map[*connection]struct{}
	peers map[string]int // connections of each
}

// connection is one of a bounded listener.
type connection struct {
	net.Conn
	of     *bounded
	peer   string
	silent bool      // no request is being answered: its header is not complete
	since  time.Time // when it became so
}

// Bound keeps at most that many connections of a listener open. One more takes the place of the connection that is silent
// the longest, of the peer with the most. If all have requests, it takes the place of the oldest of a peer with more than half
// of them, or is closed if its own peer is that or there is none. The server has Track as its ConnState; TLS comes after it.
func Bound(l net.Listener, most int) net.Listener {
	return &bounded{Listener: l, most: most, open: map[*connection]struct{}{}, peers: map[string]int{}}
}

// Track follows the state of a connection of a bounded listener.
func Track(conn net.Conn, state http.ConnState) {
	if secured, is := conn.(*tls.Conn); is {
		conn = secured.NetConn()
	}
	if c, is := conn.(*connection); is && state != http.StateNew {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.silent, c.since = state == http.StateIdle, time.Now()
	}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := (&connection{Conn: conn, of: b, peer: peer(conn.RemoteAddr()), silent: true, since: time.Now()}); b.admit(c) {
			return c, nil
		}
		conn.Close()
	}
}

// admit adds a connection if there is or can be room for it.
func (b *bounded) admit(c *connection) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open) >= b.most {
		out := b.victim(c.peer)
		if out == nil {
			return false
		}
		b.remove(out)
		out.Conn.Close()
	}
	b.open[c] = struct{}{}
	b.peers[c.peer]++
	return true
}

// victim is the connection that makes room for a peer's, nil if none does.
func (b *bounded) victim(newcomer string) (out *connection) {
	for c := range b.open {
		if !c.silent && (c.peer == newcomer || b.peers[c.peer] <= b.most/2) {
			continue
		}
		if out == nil || b.before(c, out) {
			out = c
		}
	}
	return out
}

// before says whether c is closed before the other to make room: first if it alone is silent, then if its peer has more connections,
// then if it has been so for longer.
func (b *bounded) before(c, other *connection) bool {
	if c.silent != other.silent {
		return c.silent
	}
	if n, m := b.peers[c.peer], b.peers[other.peer]; n != m {
		return n > m
	}
	return c.since.Before(other.since)
}

func (b *bounded) remove(c *connection) {
	if _, is := b.open[c]; !is {
		return
	}
	delete(b.open, c)
	if b.peers[c.peer]--; b.peers[c.peer] == 0 {
		delete(b.peers, c.peer)
	}
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.remove(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// peer is the address that a connection comes from, of IPv6 the network of it, and the same for all of a unix socket.
func peer(at net.Addr) string {
	from, err := netip.ParseAddrPort(at.String())
	if err != nil {
		return ""
	}
	ip := from.Addr().Unmap()
	if network, err := ip.Prefix(64); err == nil && ip.Is6() {
		return network.String()
	}
	return ip.String()
}
