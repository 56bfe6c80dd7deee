// Package serve is how the project's programs offer status, metrics and health:
// on a unix socket or a port, as --status-address says.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evictd/evictd/internal/cli"
)

// Timeout is how long a request, or the end of one, may take.
const Timeout = 5 * time.Second

// Server serves an address. Its listener is nil where there is none.
type Server struct {
	Handler  http.Handler // to be set before Serve
	listener net.Listener
	http     http.Server
}

// Split reads the unix:PATH or IP:PORT of --status-address as net.Dial has it.
func Split(address string) (network, at string, err error) {
	return split("--status-address", address)
}

func split(flag, address string) (network, at string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("%s %q: expected unix:PATH, IP:PORT or none", flag, address)
		}
		return "unix", path, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil {
		return "", "", fmt.Errorf("%s %q: expected unix:PATH, IP:PORT or none", flag, address)
	}
	return "tcp", address, nil
}

// Listen takes the address of a flag, so that a busy one is known at the start;
// none is taken for "none". An address that is held is taken from there. Errors
// name the flag.
func Listen(flag, address string, held Held) (*Server, error) {
	s := &Server{http: http.Server{ReadHeaderTimeout: Timeout, IdleTimeout: time.Minute}}
	if address == "none" {
		return s, nil
	}
	network, at, err := split(flag, address)
	if err != nil {
		return nil, cli.BadInput(err)
	}
	if s.listener = held.take(address); s.listener != nil {
		return s, nil
	}
	if network == "unix" {
		s.listener, err = socket(at)
	} else {
		s.listener, err = net.Listen(network, at)
	}
	if err != nil {
		return nil, cli.BadInput(fmt.Errorf("%s: %w", flag, err))
	}
	return s, nil
}

// Socket listens on a unix socket for its owner and group, in the place of one
// that nobody listens on any more; or it takes the one that is held.
func Socket(path string, held Held) (net.Listener, error) {
	if l := held.take("unix:" + path); l != nil {
		return l, nil
	}
	return socket(path)
}

func socket(path string) (net.Listener, error) {
	if err := clearSocket(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o660); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
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

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, log *slog.Logger) {
	if s.listener == nil {
		return
	}
	s.http.Handler = s.Handler
	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if s.http.Shutdown(shutdown) != nil {
			s.http.Close()
		}
	})
	defer stop()
	if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
		log.Error("an address is lost", "address", s.listener.Addr().String(), "error", err)
	}
}

// Probe answers ok, or that it is not yet.
func Probe(good func() bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !good() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
