package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestASocketThatNobodyListensOnIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "status.sock")
	for range 2 {
		s, err := Listen("--status-address", "unix:"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.listener.(*net.UnixListener).SetUnlinkOnClose(false) // as a daemon that was killed
		s.listener.Close()
	}
}

func TestAServerAnswersUntilItsContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "status.sock")
	s, err := Listen("--status-address", "unix:"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /good", Probe(func() bool { return true }))
	mux.Handle("GET /bad", Probe(func() bool { return false }))
	s.Handler = mux
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(ctx, slog.New(slog.DiscardHandler)) })
	client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for path, want := range map[string]string{"/good": "200 OK ok", "/bad": "503 Service Unavailable not yet"} {
		answer, err := client.Get("http://it" + path)
		if err != nil {
			t.Fatal(err)
		}
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

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	for _, address := range []string{"", "unix:", "localhost:80", "127.0.0.1"} {
		if _, err := Listen("--status-address", address, nil); err == nil || !strings.Contains(err.Error(), "expected unix:PATH, IP:PORT or none") {
			t.Errorf("%q: %v", address, err)
		}
	}
	if s, err := Listen("--status-address", "none", nil); err != nil {
		t.Error(err)
	} else {
		s.Serve(t.Context(), slog.New(slog.DiscardHandler))
	}
}
