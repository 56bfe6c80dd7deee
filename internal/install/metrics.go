package install

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"path/filepath"
	"time"
)

// readTimeout is how long a client may take for the head of a request.
const readTimeout = 10 * time.Second

// ServeMetrics serves the metrics of the host's evictd, and nothing else of its status, until ctx
// ends. It closes the listener.
func (i *Installer) ServeMetrics(ctx context.Context, on net.Listener) error {
	socket := filepath.Join(i.cfg.Root, runtimeDir, "status.sock")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "evictd" },
		Transport: transport,
		ErrorLog:  slog.NewLogLogger(i.log.Handler(), slog.LevelDebug),
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(on); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
