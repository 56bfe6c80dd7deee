// Package daemon is the built evictd of one node of the playground, and what it says
// of the node.
package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
)

// endless outlasts every demo script.
const endless = time.Hour

// Daemon is an evictd, whose files are in a directory. Its Service is nil before
// Start.
type Daemon struct {
	*process.Service
	Page string // address of the status page

	dir, node string
}

// New returns the evictd of a node.
func New(dir, node string) *Daemon {
	return &Daemon{dir: dir, node: node}
}

// Socket is the path of its status address.
func (d *Daemon) Socket() string { return filepath.Join(d.dir, d.node+".sock") }

func (d *Daemon) configuration() string { return filepath.Join(d.dir, d.node+".yaml") }

// Start starts it with further arguments. A condition outlives its cause until
// EndConditions is called. A kubelet of this host has another node: hence force.
func (d *Daemon) Start(program string, arguments ...string) error {
	err := d.configure(endless)
	if err == nil {
		d.Service, err = process.Serve(d.dir, d.Socket(), exec.Command(program, append([]string{
			"run", "--config", d.configuration(), "--node-name", d.node, "--mode", "native", sandbox.Force, "--cri-endpoint", "none",
			"--status-address", "unix:" + d.Socket() + "," + d.Page, "--state-dir", filepath.Join(d.dir, d.node), "--housekeeping-interval", "1s",
		}, arguments...)...))
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
	body, err := d.Get(ctx, "/v1/status")
	if err == nil {
		err = json.Unmarshal(body, &s)
	}
	return &s, err
}
