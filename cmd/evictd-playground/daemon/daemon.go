// Package daemon is the built evictd of one node of the playground, and what it says
// of the node.
package daemon

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/nodestatus"
)

// endless outlasts every story.
const endless = time.Hour

// Daemon is an evictd, whose files are in a directory. Its Service is nil before
// Start.
type Daemon struct {
	*console.Service
	Page string // address of the status page

	dir, node string
	client    *http.Client
}

// New returns the evictd of a node.
func New(dir, node string) *Daemon {
	d := &Daemon{dir: dir, node: node}
	d.client = console.Client(d.Socket())
	return d
}

// Socket is the path of its status address.
func (d *Daemon) Socket() string { return filepath.Join(d.dir, d.node+".sock") }

func (d *Daemon) configuration() string { return filepath.Join(d.dir, d.node+".yaml") }

// Start starts it with further arguments. A condition outlives its cause until
// EndConditions is called. A kubelet of this host has another node: hence force.
func (d *Daemon) Start(ctx context.Context, launcher *console.Launcher, program string, arguments ...string) error {
	err := d.configure(endless)
	if err == nil {
		d.Service, err = launcher.Serve(ctx, d.dir, "evictd-"+d.node, program, append([]string{
			"run", "--config", d.configuration(), "--node-name", d.node, "--mode", "native", "--force", "--cri-endpoint", "none",
			"--status-address", "unix:" + d.Socket() + "," + d.Page, "--state-dir", filepath.Join(d.dir, d.node), "--housekeeping-interval", "1s",
		}, arguments...)...)
	}
	return err
}

// EndConditions has conditions outlive their causes by a period from now on.
func (d *Daemon) EndConditions(after time.Duration) error {
	if err := d.configure(after); err != nil {
		return err
	}
	return d.Signal(syscall.SIGHUP)
}

func (d *Daemon) configure(transition time.Duration) error {
	text := fmt.Sprintf("apiVersion: %s\nkind: %s\nevictionPressureTransitionPeriod: %v\n", config.APIVersion, config.Kind, transition)
	return os.WriteFile(d.configuration(), []byte(text), 0o644)
}

// Status asks for /v1/status.
func (d *Daemon) Status(ctx context.Context) (*nodestatus.Status, error) {
	var s nodestatus.Status
	return &s, console.Get(ctx, d.client, "/v1/status", &s)
}
