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

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/serve"
)

const (
	// readTimeout is how long a client may take for the head of a request.
	readTimeout = 10 * time.Second
	// maxConnections, and maxHeader, in bytes, bound the memory that clients use.
	maxConnections = 64
	maxHeader      = 16 << 10
)

// statusClient is a client of the status of a host's evictd.
func statusClient(root string) *http.Client {
	return process.Client(filepath.Join(root, runtimeDir, "status.sock"))
}

// ServeMetrics serves the metrics of the host's evictd, and nothing else of its status, until ctx
// ends. It closes the listener.
func (i *Installer) ServeMetrics(ctx context.Context, on net.Listener) error {
	mux := http.NewServeMux()
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "evictd" },
		Transport: statusClient(i.cfg.Root).Transport,
		ErrorLog:  slog.NewLogLogger(i.log.Handler(), slog.LevelDebug),
	}
	mux.HandleFunc("GET /metrics", serve.OneAtATime()(proxy.ServeHTTP))
	server := &http.Server{
		Handler: serve.BodyInTime(mux), ConnState: serve.Track, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readTimeout, WriteTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(serve.Bound(on, maxConnections)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
