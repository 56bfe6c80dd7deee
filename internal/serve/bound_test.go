package serve

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// few serves at most 8 connections. A request of /slow is answered when the test ends, and what is returned reports its begin.
func few(t *testing.T, network, at string) (net.Listener, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen(network, at)
	require.NoError(t, err)
	begun := make(chan struct{}, 100)
	server := &http.Server{ConnState: Track, MaxHeaderBytes: maxHeader, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			select {
			case <-t.Context().Done():
			case <-r.Context().Done():
			}
		}
		fmt.Fprint(w, "served")
	})}
	bound := Bound(l, 8)
	go func() { _ = server.Serve(bound) }()
	t.Cleanup(func() { server.Close() })
	return bound, begun
}

// dial connects from an address of this host and sends the beginning of a request.
func dial(t *testing.T, l net.Listener, from, text string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: Timeout}
	if l.Addr().Network() == "tcp" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial(l.Addr().Network(), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn
}

const (
	whole = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
	slow  = "GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n"
	half  = "GET / HTTP/1.1\r\nHost: local"
)

// answered reads the response on a connection. The error says why there is none.
func answered(conn net.Conn) error {
	_ = conn.SetReadDeadline(time.Now().Add(Timeout))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s", answer.Status)
	}
	return err
}

func TestSilentConnectionsMakeRoom(t *testing.T) {
	for name, begin := range map[string]string{"idle": "", "half a header": half, "half a long header": half + strings.Repeat("x", maxHeader/2)} {
		for _, network := range []string{"tcp", "unix"} {
			at := "127.0.0.1:0"
			if network == "unix" {
				at = filepath.Join(t.TempDir(), "s")
			}
			l, _ := few(t, network, at)
			for range 100 {
				dial(t, l, "127.0.0.2", begin)
			}
			for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
				if err := answered(dial(t, l, from, whole)); err != nil {
					t.Errorf("%s, %s, from %s: %v", name, network, from, err)
				}
			}
		}
	}
}

func TestASilentConnectionIsTheFirstOfThePeerWithTheMost(t *testing.T) {
	l, _ := few(t, "tcp", "127.0.0.1:0")
	legitimate := dial(t, l, "127.0.0.1", half)
	for range 20 {
		dial(t, l, "127.0.0.2", "")
	}
	wait.Until(t, "the bound", func() bool { l := l.(*bounded); l.mu.Lock(); defer l.mu.Unlock(); return len(l.open) == 8 })
	_, err := io.WriteString(legitimate, "host\r\n\r\n")
	require.NoError(t, err)
	if err := answered(legitimate); err != nil {
		t.Errorf("a client that is slow to begin: %v", err)
	}
}

func TestRequestsInProgressStay(t *testing.T) {
	for name, c := range map[string]struct {
		held map[string]int // requests in progress, by peer
		from string
		ok   bool
	}{
		"all of the same peer":     {map[string]int{"127.0.0.1": 8}, "127.0.0.1", false},
		"all of another":           {map[string]int{"127.0.0.2": 8}, "127.0.0.1", true},
		"half of each of two":      {map[string]int{"127.0.0.2": 4, "127.0.0.3": 4}, "127.0.0.1", false},
		"room is left":             {map[string]int{"127.0.0.1": 7}, "127.0.0.1", true},
		"more than half of others": {map[string]int{"127.0.0.1": 3, "127.0.0.2": 5}, "127.0.0.1", true},
	} {
		l, begun := few(t, "tcp", "127.0.0.1:0")
		for from, n := range c.held {
			for range n {
				dial(t, l, from, slow)
				<-begun
			}
		}
		if err := answered(dial(t, l, c.from, whole)); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPeersAreAddressesOrNetworks(t *testing.T) {
	for at, want := range map[net.Addr]string{
		&net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 80}:     "192.0.2.1",
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1:2"), Port: 80}: "2001:db8::/64",
		&net.UnixAddr{Net: "unix"}:                               "",
		&net.UnixAddr{Net: "unix", Name: "@"}:                    "",
	} {
		if got := peer(at); got != want {
			t.Errorf("%s: %s, want %s", at, got, want)
		}
	}
}

func TestSilentConnectionsDoNotBlockAPortWithTLS(t *testing.T) {
	ours := newAuthority(t, "ca")
	ours.server("server")
	ours.client("me")
	s, err := Listen("status-address", "127.0.0.1:0", nil, &TLS{ours.path("server.crt"), ours.path("server.key"), ours.path("ca.crt")})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /good", Probe(func() bool { return true }))
	s.Handler = mux
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, slog.New(slog.DiscardHandler)) }()
	for range 2 * maxConnections {
		dial(t, s.ports[0], "127.0.0.1", "")
	}
	if err := ask(t, s.ports[0].Addr().String(), "--certificate-authority", ours.path("ca.crt"), "--client-certificate", ours.path("me.crt"), "--client-key", ours.path("me.key")); err != nil {
		t.Error(err)
	}
	cancel()
	<-ended
}

func TestAServerRefusesALongHeaderAndABodyThatDoesNotArrive(t *testing.T) {
	s, err := Listen("status-address", "127.0.0.1:0", nil, &TLS{})
	require.NoError(t, err)
	s.Handler = Probe(func() bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Serve(ctx, slog.New(slog.DiscardHandler)) }()
	long := dial(t, s.ports[0], "127.0.0.1", half+strings.Repeat("x", 2*maxHeader))
	if err := answered(long); err == nil || !strings.HasPrefix(err.Error(), "431") {
		t.Errorf("a long header: %v", err)
	}
	body := dial(t, s.ports[0], "127.0.0.1", "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n")
	_ = body.SetReadDeadline(time.Now().Add(2 * Timeout))
	if _, err := io.Copy(io.Discard, body); err != nil {
		t.Errorf("a body that does not arrive keeps its connection: %v", err)
	}
	cancel()
	<-ended
}

// stuck is the response to a client that does not read until it is closed.
type stuck chan struct{}

func (s stuck) Header() http.Header { return http.Header{} }

func (s stuck) WriteHeader(int) {}

func (s stuck) Write(b []byte) (int, error) {
	<-s
	return len(b), nil
}

func TestAClientThatDoesNotReadKeepsNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := OneAtATime()(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("x", keptAnswer)) })
		reads := make(stuck)
		defer close(reads)
		go answer(reads, httptest.NewRequest(http.MethodGet, "/", nil))
		synctest.Wait()
		next := httptest.NewRecorder()
		if answer(next, httptest.NewRequest(http.MethodGet, "/", nil)); next.Code != http.StatusOK || next.Body.Len() != keptAnswer {
			t.Errorf("the next client: %d, %d bytes", next.Code, next.Body.Len())
		}
	})
}
