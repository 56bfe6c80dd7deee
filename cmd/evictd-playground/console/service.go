package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Patience bounds every wait of the playground. No wait comes near it, however busy the
// machine is, unless something has failed.
const Patience = 2 * time.Minute

// Service is a child that runs until it is told to stop by SIGTERM, with what it
// writes in a file.
type Service struct {
	*Process
	Name string
	log  string
}

// Serve starts a program as the service of a name, which writes to name.log in a
// directory.
func (l *Launcher) Serve(ctx context.Context, dir, name, program string, args ...string) (*Service, error) {
	s := &Service{Name: name, log: filepath.Join(dir, name+".log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.Process, err = l.Start(ctx, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = Patience
		return nil
	}, program, args...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return s, nil
}

// Log is what the service wrote.
func (s *Service) Log() string {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// Ending is how the service ended, with the last line that it wrote.
func (s *Service) Ending() error {
	_, state := s.End()
	log := s.Log()
	return fmt.Errorf("%s ended: %v: %s", s.Name, state, log[strings.LastIndexByte(log, '\n')+1:])
}

// Await asks until it holds, the service ends, or Patience has passed. The error
// says what was awaited.
func (s *Service) Await(ctx context.Context, what string, holds func() bool) error {
	late := time.After(Patience)
	for !holds() {
		select {
		case <-s.Ended():
			return s.Ending()
		case <-ctx.Done():
			return ctx.Err()
		case <-late:
			return fmt.Errorf("%s: no %s after %v", s.Name, what, Patience)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// Addresses finds some on loopback that nobody has now.
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

// Client speaks HTTP over a unix socket.
func Client(socket string) *http.Client {
	return &http.Client{Timeout: Patience, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
}

// Get reads a JSON document.
func Get(ctx context.Context, c *http.Client, path string, into any) error {
	response, err := get(ctx, c, path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// Ready says whether a service says so itself.
func Ready(ctx context.Context, c *http.Client) bool {
	response, err := get(ctx, c, "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return true
}

func get(ctx context.Context, c *http.Client, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, errors.New(response.Status)
	}
	return response, nil
}
