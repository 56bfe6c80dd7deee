package install

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// rule: S9.10
func TestTheMetricsOfTheHostAreServedAndNothingElse(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, runtimeDir), 0o755))
	socket, err := net.Listen("unix", filepath.Join(root, runtimeDir, "status.sock"))
	require.NoError(t, err)
	evictd := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })}
	go func() { _ = evictd.Serve(socket) }()
	t.Cleanup(func() { evictd.Close() })

	on, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- New(Config{Root: root}, slog.New(slog.DiscardHandler)).ServeMetrics(ctx, on) }()
	for range 2 * maxConnections {
		silent, err := net.Dial("tcp", on.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { silent.Close() })
	}
	for path, want := range map[string]string{"/metrics": "/metrics", "/v1/status": "404 page not found\n", "/": "404 page not found\n"} {
		answer, err := http.Get("http://" + on.Addr().String() + path)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; expected %q", path, text, err, want)
		}
	}
	cancel()
	require.NoError(t, <-ended)
}
