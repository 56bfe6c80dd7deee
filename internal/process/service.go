package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/evictd/evictd/internal/wait"
)

// Service is a program that writes a log and serves a status address.
type Service struct {
	*Process
	client *http.Client
	log    string // file; "" where the command has a standard error
}

// Serve starts a program that serves on a unix socket. Its log is a file of its own in
// a directory, unless the command has a standard error.
func Serve(dir, socket string, cmd *exec.Cmd) (*Service, error) {
	s := &Service{client: Client(socket)}
	if cmd.Stderr == nil {
		log, err := os.CreateTemp(dir, filepath.Base(cmd.Path)+".*.log")
		if err != nil {
			return nil, err
		}
		defer log.Close()
		s.log, cmd.Stderr = log.Name(), log
	}
	var err error
	s.Process, err = Start(cmd)
	return s, err
}

// Ready returns once the service says that it is ready. The error says that it has
// ended, or that ctx has.
func (s *Service) Ready(ctx context.Context) error {
	var last error
	err := wait.That(ctx, func() bool {
		_, last = Get(ctx, s.client, "/readyz?exclude=pods") // of evictd: tests make pods without a process
		return last == nil || !s.Running()
	})
	switch {
	case last == nil:
		return nil
	case err != nil:
		return fmt.Errorf("%s is not ready: %w", s.Name(), last)
	}
	_, state := s.End()
	return fmt.Errorf("%s ended before it was ready: %v", s.Name(), state)
}

// Await returns once holds is true. The error says that the service has ended, or that ctx
// has.
func (s *Service) Await(ctx context.Context, what string, holds func() bool) error {
	met := false
	err := wait.That(ctx, func() bool {
		met = holds()
		return met || !s.Running()
	})
	switch {
	case met:
		return nil
	case err != nil:
		return fmt.Errorf("%s: no %s: %w", s.Name(), what, err)
	}
	return s.Ending()
}

// Ending waits for the end of the service and returns how it ended, with the last line of
// its log.
func (s *Service) Ending() error {
	_, state := s.End()
	log := strings.TrimSpace(s.Log())
	return fmt.Errorf("%s ended: %v: %s", s.Name(), state, log[strings.LastIndexByte(log, '\n')+1:])
}

// Get reads a document of the status address.
func (s *Service) Get(ctx context.Context, path string) ([]byte, error) {
	return Get(ctx, s.client, path)
}

// Log is what the service has written so far.
func (s *Service) Log() string {
	if s.log == "" {
		return ""
	}
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Client speaks HTTP over a unix socket, whatever the host of the URL. It keeps no
// connection.
func Client(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// Get reads a document. Any other status than 200 OK is an error.
func Get(ctx context.Context, c *http.Client, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return body, err
}

// Addresses are n of loopback on which no program listens now.
func Addresses(n int) (found []string, err error) {
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // not before all are found, so that they differ
		found = append(found, listener.Addr().String())
	}
	return found, nil
}
