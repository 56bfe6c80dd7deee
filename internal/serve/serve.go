// Package serve is how the project's programs offer status, metrics and health:
// on a unix socket or a port, as --status-address says.
package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evictd/evictd/internal/cli"
)

// Timeout is how long a request, or the end of one, may take.
const Timeout = 5 * time.Second

// patience is how long a connection may be without progress: until its first request, during
// an answer, and until the next request. Under a fork bomb a client may not run for seconds after it
// has connected.
const patience = time.Minute

// maxConnections, of an address, and maxHeader, in bytes, bound the memory that clients use.
const (
	maxConnections = 64
	maxHeader      = 16 << 10
)

// Server serves some addresses, or none.
type Server struct {
	Handler http.Handler // to be set before Serve
	ports   []port
	http    http.Server
}

// port is one of the addresses.
type port struct {
	net.Listener
	credentials *credentials // nil without TLS
}

// split reads unix:PATH or IP:PORT as net.Dial has it.
func split(flag, address string) (network, at string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return "", "", fmt.Errorf("--%s %q: expected unix:PATH, IP:PORT or none", flag, address)
		}
		return "unix", path, nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil {
		return "", "", fmt.Errorf("--%s %q: expected unix:PATH, IP:PORT or none", flag, address)
	}
	return "tcp", address, nil
}

// Check validates the addresses of a flag as Listen does, and opens nothing.
func Check(flag, addresses string, files *TLS) error {
	if addresses == "none" {
		return nil
	}
	var faults []error
	for address := range strings.SplitSeq(addresses, ",") {
		network, at, err := split(flag, address)
		if err == nil && network != "unix" {
			_, err = files.protects(flag, at)
		}
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Listen takes the addresses of a flag, separated by commas, so that a busy one is
// known at the start; none is taken for "none". An address that is held is taken
// from there. A port that others can reach needs the files of a TLS, unless that is
// nil. Errors name the flag.
func Listen(flag, addresses string, held HeldSockets, files *TLS) (*Server, error) {
	s := &Server{http: http.Server{
		ReadHeaderTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: maxHeader, ConnState: Track,
	}}
	if addresses == "none" {
		return s, nil
	}
	for address := range strings.SplitSeq(addresses, ",") {
		p, err := listen(flag, address, held, files)
		if err != nil {
			for _, p := range s.ports {
				p.Close()
			}
			return nil, err
		}
		s.ports = append(s.ports, p)
	}
	return s, nil
}

func listen(flag, address string, held HeldSockets, files *TLS) (p port, err error) {
	network, at, err := split(flag, address)
	if err != nil {
		return p, cli.BadInput(err)
	}
	if network != "unix" && files != nil {
		if p.credentials, err = files.secure(flag, at); err != nil {
			return p, err
		}
	}
	p.Listener = held.take(address)
	switch {
	case p.Listener != nil:
	case network == "unix":
		p.Listener, err = socket(at)
	default:
		p.Listener, err = net.Listen(network, at)
	}
	if err != nil {
		return p, cli.BadInput(fmt.Errorf("--%s: %w", flag, err))
	}
	return p, nil
}

// Socket listens on a unix socket for its owner and group, or uses a held one. It
// replaces a socket without a listener.
func Socket(path string, held HeldSockets) (net.Listener, error) {
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

// clearSocket creates the socket's directory, and removes a socket without a listener.
func clearSocket(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil // it does not exist; Listen reports other errors
	}
	if info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is in the way and is no socket", path)
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return fmt.Errorf("%s is in use by another process: end that one, or give another address", path)
	}
	return os.Remove(path)
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context, log *slog.Logger) {
	s.http.Handler = BodyInTime(ofThisHost(s.Handler))
	s.http.BaseContext = base
	s.http.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug) // faults of clients
	stop := context.AfterFunc(ctx, func() {
		shutdown, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if s.http.Shutdown(shutdown) != nil {
			s.http.Close()
		}
	})
	defer stop()
	var all sync.WaitGroup
	for _, p := range s.ports {
		all.Go(func() {
			if err := s.http.Serve(p.open(log)); !errors.Is(err, http.ErrServerClosed) {
				log.Error("an address is lost", "address", p.Addr().String(), "error", err)
			}
		})
	}
	all.Wait()
}

// open is what is served: behind TLS where there are files for it.
func (p port) open(log *slog.Logger) net.Listener {
	few := Bound(p.Listener, maxConnections)
	if p.credentials == nil {
		return few
	}
	p.credentials.log = log
	return p.credentials.listen(few)
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

// BodyInTime gives the body of a request Timeout to arrive.
func BodyInTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(Timeout)) // a recorder of tests has none
		}
		next.ServeHTTP(w, r)
	})
}

// late is a response that keeps the last keptAnswer bytes, which are written after the turn has ended.
type late struct {
	http.ResponseWriter
	kept *bufio.Writer
}

const keptAnswer = 256 << 10

func (l late) Write(b []byte) (int, error) { return l.kept.Write(b) }

func (l late) Unwrap() http.ResponseWriter { return l.ResponseWriter }

// OneAtATime makes handlers that share one turn: while a request is answered, the others
// wait, and are answered 503 after Timeout. Many clients then cost no more than one. A client has Timeout to send the body
// of its request, and twice that for it and to read what is not kept of a large answer.
func OneAtATime() func(http.HandlerFunc) http.HandlerFunc {
	turn := make(chan struct{}, 1)
	return func(handle http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), Timeout)
			defer cancel()
			select {
			case turn <- struct{}{}:
			case <-ctx.Done():
				w.Header().Set("Retry-After", "1")
				http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
				return
			}
			answer := late{w, bufio.NewWriterSize(w, keptAnswer)}
			func() {
				defer func() { <-turn }()
				_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * Timeout)) // a recorder of tests has none
				BodyInTime(handle).ServeHTTP(answer, r)
			}()
			_ = answer.kept.Flush() // the client may have disconnected
		}
	}
}
