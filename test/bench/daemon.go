package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/evictd/evictd/nodestatus"
)

// daemon is evictd.
type daemon struct {
	path    string
	gogc    int // 0: its own
	process *exec.Cmd
	client  http.Client
	log     bytes.Buffer
}

func (d *daemon) name() string {
	if d.gogc > 0 {
		return fmt.Sprintf("evictd, GOGC=%d", d.gogc)
	}
	return "evictd"
}

func (d *daemon) start(n *node) error {
	socket := filepath.Join(n.dir, "status.sock")
	d.process = exec.Command(d.path, "run", "--node-name=bench", "--cgroup-root="+n.group, "--pods-cgroup=kubepods", "--cri-endpoint=none",
		"--nodefs="+n.dir, "--pod-manifests="+n.manifests(), "--status-address=unix:"+socket, "--state-dir="+n.dir+"/state", "--runtime-dir="+n.dir+"/run",
		fmt.Sprintf("--eviction-hard=memory.available<%d", threshold), "--hard-eviction-grace-period=0s")
	d.process.Stderr = &d.log
	if d.gogc > 0 {
		d.process.Env = append(os.Environ(), fmt.Sprintf("GOGC=%d", d.gogc))
	}
	d.client = http.Client{Timeout: patience, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	return d.process.Start()
}

func (d *daemon) stop() {
	if d.process != nil {
		_ = d.process.Process.Kill()
		_ = d.process.Wait() // which says that it was killed
	}
}

// status asks until the status is as wanted.
func (d *daemon) await(ctx context.Context, what string, holds func(*nodestatus.Status) bool) error {
	for end := time.Now().Add(patience); ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		var s nodestatus.Status
		response, err := d.client.Get("http://evictd/v1/status")
		if err == nil {
			err = json.NewDecoder(response.Body).Decode(&s)
			response.Body.Close()
		}
		if err == nil && holds(&s) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("waited %v for %s: %v\n%s", patience, what, err, d.log.Bytes())
		}
	}
	return ctx.Err()
}

func (d *daemon) expect(ctx context.Context, p *pod) error {
	return d.await(ctx, "evictd to measure the pod", func(s *nodestatus.Status) bool {
		for _, r := range s.Ranking["memory.available"] {
			if r.UID == p.UID && r.Usage != "" {
				return true
			}
		}
		return false
	})
}

func (d *daemon) signalled(p *pod) (at int64, err error) {
	err = d.await(context.Background(), "the eviction", func(s *nodestatus.Status) bool {
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
