package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/evictd/evictd/internal/cli"
)

const (
	defaultStatusAddress = "unix:/run/evictd/status.sock"
	statusTimeout        = 5 * time.Second
)

// server serves the status address. Its listener is nil where there is none.
type server struct {
	listener net.Listener
	http     http.Server
}

// splitAddress reads unix:PATH or IP:PORT as net.Dial has it.
func splitAddress(address string) (network, at string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("--status-address %q: expected unix:PATH, IP:PORT or none", address)
		}
		return "unix", path, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil {
		return "", "", fmt.Errorf("--status-address %q: expected unix:PATH, IP:PORT or none", address)
	}
	return "tcp", address, nil
}

// listen takes the status address, so that a busy one is known at the start.
func listen(address string) (*server, error) {
	s := &server{http: http.Server{ReadHeaderTimeout: statusTimeout, IdleTimeout: time.Minute}}
	if address == "none" {
		return s, nil
	}
	network, at, err := splitAddress(address)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if network == "unix" {
		if err := clearSocket(at); err != nil {
			return nil, cli.BadInput(fmt.Errorf("--status-address: %w", err))
		}
	}
	if s.listener, err = net.Listen(network, at); err != nil {
		return nil, cli.BadInput(fmt.Errorf("--status-address: %w", err))
	}
	if network == "unix" {
		if err := os.Chmod(at, 0o660); err != nil {
			return nil, fmt.Errorf("status address: %w", err)
		}
	}
	return s, nil
}

// clearSocket makes the socket's directory, and takes away a socket that nobody
// listens on any more.
func clearSocket(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil // not there: listening will tell of anything else
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is in the way and is no socket", path)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return fmt.Errorf("%s is in use by another process", path)
	}
	return os.Remove(path)
}

// serve answers until ctx ends.
func (s *server) serve(ctx context.Context, log *slog.Logger) {
	if s.listener == nil {
		return
	}
	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.Background(), statusTimeout)
		defer cancel()
		if s.http.Shutdown(shutdown) != nil {
			s.http.Close()
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		log.Error("the status address is lost", "error", err)
	}
}

// handler sets the routes of the status address.
func (d *daemon) handler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	probe := func(good func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !good() {
				http.Error(w, "not yet", http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("GET /healthz", probe(func() bool {
		last := d.publisher.LastPass()
		return last.IsZero() || time.Since(last) < 3*d.cfg.HousekeepingInterval+statusTimeout
	}))
	mux.HandleFunc("GET /readyz", probe(d.publisher.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), statusTimeout)
		defer cancel()
		status, err := d.publisher.Status(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(status); err != nil {
			d.log.Debug("status not delivered", "error", err)
		}
	})
	return mux
}
