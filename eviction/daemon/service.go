package daemon

import (
	"context"
	"time"

	"github.com/evictd/evictd/internal/serve"
)

// attendEvery is how often the service manager is told how the node stands, at
// most.
const attendEvery = time.Second

// attend tells the service manager that evictd is ready, when a threshold has been
// measured, and after passes how the node stands.
func (d *Daemon) attend(ctx context.Context) {
	defer func() { d.inform("STOPPING=1") }()
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.publisher.Passed():
		}
		line := d.line(ctx)
		switch {
		case line == "":
			continue
		case ready:
			d.inform("STATUS=" + line)
		default:
			ready = d.inform("READY=1", "STATUS="+line)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(attendEvery):
		}
	}
}

// line says how the node stands; nothing while no threshold was measured.
func (d *Daemon) line(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, serve.Timeout)
	defer cancel()
	line, err := d.publisher.Summary(ctx)
	if err != nil || line == "" {
		return ""
	}
	if d.dryRun {
		line = "dry run; " + line
	}
	if fault := d.refused.Load(); fault != nil {
		line = "the new configuration is refused: " + *fault + "; " + line
	}
	return line
}

// inform tells the service manager, which may not read just now.
func (d *Daemon) inform(assignments ...string) bool {
	err := d.service.Notify(assignments...)
	if err != nil {
		d.log.Debug("the service manager is not told", "error", err)
	}
	return err == nil
}
