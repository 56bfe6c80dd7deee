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
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
)

func TestASocketWithoutAListenerIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "status.sock")
	for range 2 {
		s, err := Listen("status-address", "unix:"+path, nil, &TLS{})
		require.NoError(t, err)
		s.ports[0].Listener.(*net.UnixListener).SetUnlinkOnClose(false) // as a daemon that was killed
		s.ports[0].Close()
	}
}

func TestAServerAnswersUntilItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	s, err := Listen("status-address", "unix:"+path, nil, &TLS{})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /good", Probe(func() bool { return true }))
	mux.Handle("GET /bad", Probe(func() bool { return false }))
	s.Handler = mux
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx, slog.New(slog.DiscardHandler)) })
	client := process.Client(path)
	for path, want := range map[string]string{"/good": "200 OK ok", "/bad": "503 Service Unavailable not yet"} {
		answer, err := client.Get("http://it" + path)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if got := answer.Status + " " + strings.TrimSpace(string(body)); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", path, got, err, want)
		}
	}
	client.CloseIdleConnections()
	cancel()
	serving.Wait()
	if _, err := client.Get("http://it/good"); err == nil {
		t.Error("it answers after the end")
	}
}

// pipes is a listener of the server's ends of pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Net: "unix"} }

func TestAClientThatDoesNotGetTheProcessorForHalfAMinuteIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Listen("status-address", "none", nil, nil)
		require.NoError(t, err)
		clients := make(pipes)
		s.ports, s.Handler = []port{{Listener: clients}}, Probe(func() bool { return true })
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() { s.Serve(ctx, slog.New(slog.DiscardHandler)) })
		defer time.Sleep(Timeout) // Serve does not wait for the end of the shutdown
		defer serving.Wait()
		defer cancel()
		client, server := net.Pipe()
		clients <- server
		time.Sleep(30 * time.Second)
		_, err = fmt.Fprint(client, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		require.NoError(t, err)
		answer, err := http.ReadResponse(bufio.NewReader(client), nil)
		require.NoError(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Error(answer.Status)
		}
	})
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	for _, address := range []string{"", "unix:", "localhost:80", "127.0.0.1"} {
		if _, err := Listen("status-address", address, nil, &TLS{}); err == nil || !strings.Contains(err.Error(), "expected unix:PATH, IP:PORT or none") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if s, err := Listen("status-address", "none", nil, &TLS{}); err != nil {
		t.Error(err)
	} else {
		s.Serve(t.Context(), slog.New(slog.DiscardHandler))
	}
}

func TestEachOfSeveralAddressesAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	s, err := Listen("status-address", "unix:"+path+",127.0.0.1:0", nil, nil)
	require.NoError(t, err)
	s.Handler = Probe(func() bool { return true })
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx, slog.New(slog.DiscardHandler)) })
	for _, l := range s.ports {
		for host, want := range map[string]map[string]int{
			"localhost:9464": {"unix": 200, "tcp": 200}, "127.0.0.1": {"unix": 200, "tcp": 200}, "[::1]:80": {"unix": 200, "tcp": 200}, "": {"unix": 200, "tcp": 200},
			"evictd": {"unix": 200, "tcp": 421}, "rebound.example:9464": {"unix": 421, "tcp": 421}, "127.0.0.1.example": {"unix": 421, "tcp": 421},
		} {
			conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
			require.NoError(t, err)
			fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			if network := l.Addr().Network(); answer.StatusCode != want[network] {
				t.Errorf("%s, host %q: %s, want %d", network, host, answer.Status, want[network])
			}
			conn.Close()
		}
		c := Client{program: "evictd", address: addressOf(l)}
		if body, err := c.Fetch(t.Context(), "/"); err != nil || string(body) != "ok\n" {
			t.Errorf("the client at %s: %q, %v", c.address, body, err)
		}
	}
	cancel()
	serving.Wait()
}

func TestOneAddressThatIsNoneKeepsNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	if _, err := Listen("status-address", "unix:"+path+",localhost:80", nil, nil); err == nil {
		t.Fatal("taken")
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the other address is kept open")
	}
}

func TestPagesOfOtherOriginsMayNotReadTheAPI(t *testing.T) {
	h := ofThisHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, c := range []struct {
		path, site string
		want       int
	}{
		{"/v1/status", "cross-site", http.StatusForbidden},
		{"/v1/explain?pod=p", "same-site", http.StatusForbidden},
		{"/v1/events", "cross-site", http.StatusForbidden},
		{"/v1/status", "same-origin", http.StatusOK},
		{"/v1/status", "none", http.StatusOK}, // typed by the user
		{"/v1/status", "", http.StatusOK},     // not a browser
		{"/", "cross-site", http.StatusOK},    // a link to the page
	} {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+c.path, nil)
		r.Header.Set("Sec-Fetch-Site", c.site)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s from %q: %d, want %d", c.path, c.site, w.Code, c.want)
		}
	}
}

// clientOf is the side of the server of a connection to a client.
type clientOf struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (c clientOf) Write(b []byte) (int, error) { return c.ResponseRecorder.Write(b) }

func TestABodyThatDoesNotArriveLosesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := OneAtATime()(func(w http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) })
		server, client := net.Pipe()
		defer client.Close()
		begun := time.Now()
		read(clientOf{httptest.NewRecorder(), server}, httptest.NewRequest(http.MethodPost, "/", server))
		if took := time.Since(begun); took != Timeout {
			t.Errorf("it had its turn for %v", took)
		}
	})
}

func TestRequestsThatShareATurnAreAnsweredOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := OneAtATime()
		first := turn(func(http.ResponseWriter, *http.Request) { time.Sleep(Timeout - 1) })
		second := turn(func(http.ResponseWriter, *http.Request) { time.Sleep(2 * Timeout) })
		request := func(h http.HandlerFunc) int {
			w := httptest.NewRecorder()
			h(w, httptest.NewRequest(http.MethodGet, "/", nil))
			return w.Code
		}
		begun := time.Now()
		var all sync.WaitGroup
		all.Go(func() { request(first) })
		synctest.Wait()
		all.Go(func() {
			if code := request(second); code != http.StatusOK || time.Since(begun) != 3*Timeout-1 {
				t.Errorf("the second: %d after %v", code, time.Since(begun))
			}
		})
		synctest.Wait()
		time.Sleep(Timeout - 1)
		synctest.Wait()
		if code := request(first); code != http.StatusServiceUnavailable {
			t.Errorf("the third: %d", code)
		}
		all.Wait()
	})
}
