package main

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

	"sigs.k8s.io/yaml"

	"github.com/evictd/evictd/nodestatus"
)

const (
	// transition is how long the condition outlives its cause.
	transition = 5 * time.Second
	// patience bounds how long evictd takes to start, and to stop.
	patience = 5 * time.Second
)

// memoryAvailable is the signal that the story is about.
const memoryAvailable = "memory.available"

// daemon is an evictd of the playground's own, and what it reads and writes, in
// one directory.
type daemon struct {
	*process
	dir    string
	client http.Client
}

func (d *daemon) manifests() string { return filepath.Join(d.dir, "pods") }
func (d *daemon) nodeFile() string  { return filepath.Join(d.dir, "node.yaml") }
func (d *daemon) socket() string    { return filepath.Join(d.dir, "status.sock") }
func (d *daemon) logFile() string   { return filepath.Join(d.dir, "evictd.log") }

// newDaemon makes the directory, and says what pods there are.
func newDaemon(pods []*pod) (*daemon, error) {
	dir, err := os.MkdirTemp("", "evictd-playground-")
	if err != nil {
		return nil, err
	}
	d := &daemon{dir: dir}
	d.client = http.Client{Timeout: time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.socket())
		},
	}}
	if err := os.Mkdir(d.manifests(), 0o755); err != nil {
		return d, err
	}
	for _, p := range pods {
		text, err := yaml.Marshal(p.manifest())
		if err == nil {
			err = os.WriteFile(filepath.Join(d.manifests(), p.name+".yaml"), text, 0o644)
		}
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// start starts evictd and waits until it ranks that many pods. It returns the
// order of their eviction.
func (d *daemon) start(ctx context.Context, program string, n *node, pods int) ([]nodestatus.Ranked, error) {
	log, err := os.Create(d.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	// A kubelet of this host minds another node: hence force.
	args := append([]string{"run"}, n.flags()...)
	args = append(args, "--mode", "native", "--force", "--node-name", "playground",
		"--pod-manifests", d.manifests(), "--node-status-file", d.nodeFile(), "--status-address", "unix:"+d.socket(),
		"--state-dir", d.dir, "--cri-endpoint", "none", "--housekeeping-interval", "1s",
		"--eviction-hard", memoryAvailable+"<"+size(threshold), "--eviction-pressure-transition-period", transition.String())
	d.process, err = start(ctx, func(cmd *exec.Cmd) error {
		cmd.Stdout, cmd.Stderr = log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = patience
		return nil
	}, program, args...)
	if err != nil {
		return nil, fmt.Errorf("start evictd: %w", err)
	}
	late := time.After(patience)
	for {
		status, err := d.status(ctx)
		if err == nil && len(status.Ranking[memoryAvailable]) == pods {
			return status.Ranking[memoryAvailable], nil
		}
		select {
		case <-d.ended:
			return nil, fmt.Errorf("evictd did not start: %v", d.state)
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-late:
			return nil, fmt.Errorf("evictd does not rank %d pods after %v", pods, patience)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// status asks for /v1/status.
func (d *daemon) status(ctx context.Context) (*nodestatus.Status, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://evictd/v1/status", nil)
	if err != nil {
		return nil, err
	}
	response, err := d.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	var s nodestatus.Status
	return &s, json.NewDecoder(response.Body).Decode(&s)
}

// log is what evictd wrote.
func (d *daemon) log() string {
	text, err := os.ReadFile(d.logFile())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

func (d *daemon) remove() error {
	d.client.CloseIdleConnections()
	return os.RemoveAll(d.dir)
}
