package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/nodestatus"
)

// daemon is evictd.
type daemon struct {
	path    string
	gogc    int // 0: its own
	service *process.Service
}

func (d *daemon) name() string {
	if d.gogc > 0 {
		return fmt.Sprintf("%s, GOGC=%d", d.path, d.gogc)
	}
	return d.path
}

func (d *daemon) start(n *node) (err error) {
	cmd := exec.Command(d.path, n.Evictd(sandbox.CgroupRoot(n.Group), sandbox.PodsCgroup(n.PodsGroup()), sandbox.NodeStatusFile(""),
		sandbox.Housekeeping("10s"), sandbox.Transition("5m"), sandbox.EvictionHard(fmt.Sprintf("memory.available<%dMi", n.threshold)), sandbox.HardGrace("0s"))...)
	if d.gogc > 0 {
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOGC=%d", d.gogc))
	}
	d.service, err = process.Serve(n.Dir, n.Socket(), cmd)
	return err
}

func (d *daemon) stop() {
	if d.service != nil {
		d.service.Kill()
	}
}

// await reads the status until it is as wanted, at most for patience.
func (d *daemon) await(ctx context.Context, what string, holds func(*nodestatus.Status) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	err := d.service.Await(ctx, what, func() bool {
		var s nodestatus.Status
		text, err := d.service.Get(ctx, "/v1/status")
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		last = err
		return err == nil && holds(&s)
	})
	if err != nil {
		return fmt.Errorf("%w: %v\n%s", err, last, d.service.Log())
	}
	return nil
}

func (d *daemon) expect(ctx context.Context, p *pod) error {
	return d.await(ctx, "figure of the pod", func(s *nodestatus.Status) bool {
		for _, r := range s.Ranking["memory.available"] {
			if r.UID == p.UID && r.Usage != "" {
				return true
			}
		}
		return false
	})
}

func (d *daemon) signalled(p *pod) (at int64, err error) {
	err = d.await(context.Background(), "eviction of the pod", func(s *nodestatus.Status) bool {
		for _, e := range s.Evictions {
			if e.UID == p.UID && !e.Gone.IsZero() {
				at = monotonic() - time.Since(e.Signalled.Time).Nanoseconds()
				return true
			}
		}
		return false
	})
	return at, err
}

func (d *daemon) wrap(fill []string) *exec.Cmd { return self("fill", fill...) }

func (d *daemon) ended(p *pod) (why string) {
	_ = d.await(context.Background(), "eviction of the pod", func(s *nodestatus.Status) bool {
		for _, e := range s.Evictions {
			if e.UID == p.UID {
				why = fmt.Sprintf("evictd evicted it for %s: %s", e.Signal, e.Message)
			}
		}
		return why != ""
	})
	return why
}
