package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/embeddedapi"
	"github.com/evictd/evictd/internal/osprocess"
	"github.com/evictd/evictd/internal/serve"
)

const (
	headerTimeout = 10 * time.Second
	maxHeader     = 64 << 10
	stopTimeout   = 5 * time.Second
	// maxConnections is of an address: a client of HTTP/1 has one for each watch.
	maxConnections = 2048
)

// run serves until ctx ends.
func run(ctx context.Context, cfg embeddedapi.Config, addresses []string, files *tlsFiles) error {
	osprocess.LimitHeap(100) // at 50 the collector takes a quarter of the time of a binding
	service, err := osprocess.NewService()
	if err != nil {
		return cli.BadInput(err)
	}
	held, _, err := serve.TakeHeld()
	if err != nil {
		return err
	}
	secure, tokens, err := files.config()
	if err != nil {
		return err
	}
	listeners, err := listenAll(addresses, held, secure)
	if err != nil {
		return err
	}
	held.Release(cfg.Log)
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	cfg.Tokens = tokens
	api, err := embeddedapi.New(cfg)
	if err != nil {
		return fmt.Errorf("--data %s: %w", cfg.Data, err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{Handler: api, ReadHeaderTimeout: headerTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: maxHeader,
		ConnState: serve.Track, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn)}
	var serving sync.WaitGroup
	lost := make(chan error, len(listeners))
	for _, l := range listeners {
		serving.Go(func() {
			if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				lost <- fmt.Errorf("serve %s: %w", l.Addr(), err)
				stop()
			}
		})
		cfg.Log.Info("serving", "address", l.Addr().String(), "data", cfg.Data)
	}
	if err := service.Notify("READY=1"); err != nil {
		cfg.Log.Warn("the service manager does not know that the API is served", "error", err)
	}
	err = api.Run(ctx) // watches end with it, so that the server can stop
	shutdown, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if server.Shutdown(shutdown) != nil {
		server.Close()
	}
	serving.Wait()
	close(lost)
	return errors.Join(err, <-lost, api.Close())
}

// listenAll takes all addresses or none.
func listenAll(addresses []string, held serve.HeldSockets, secure *tls.Config) (listeners []net.Listener, err error) {
	var faults []error
	for _, address := range addresses {
		l, err := listen(address, held, secure)
		if err != nil {
			faults = append(faults, cli.BadInput(fmt.Errorf("--listen %s: %w", address, err)))
			continue
		}
		listeners = append(listeners, l)
	}
	if len(faults) == 0 {
		return listeners, nil
	}
	for _, l := range listeners {
		faults = append(faults, l.Close())
	}
	return nil, errors.Join(faults...)
}

// listen serves this host in the clear, and other hosts by TLS to known clients.
func listen(address string, held serve.HeldSockets, secure *tls.Config) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if !filepath.IsAbs(path) {
			return nil, errors.New("expected unix: and an absolute path")
		}
		l, err := serve.Socket(path, held)
		if err != nil {
			return nil, err
		}
		return serve.Bound(l, maxConnections), nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() && secure == nil {
		return nil, fmt.Errorf("other hosts could reach it; expected unix:PATH, 127.0.0.1:PORT or [::1]:PORT, or IP:PORT with --%s, --%s, and --%s or --%s", certFlag, keyFlag, clientCAFlag, tokensFlag)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	if l = serve.Bound(l, maxConnections); !at.Addr().IsLoopback() {
		l = tls.NewListener(l, secure)
	}
	return l, nil
}
