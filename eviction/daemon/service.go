package daemon

import (
	"context"
	"time"

	"github.com/evictd/evictd/internal/serve"
)

// notifyEvery is the shortest interval of STATUS= notifications.
const notifyEvery = time.Second

// notifyService sends READY=1 after the first pass, whatever it could not measure, and
// STATUS= after each (sd_notify(3)).
func (d *Daemon) notifyService(ctx context.Context) {
	defer func() { d.inform("STOPPING=1") }()
	ready := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.publisher.Passed():
		}
		if line := d.line(ctx); ready {
			d.inform("STATUS=" + line)
		} else {
			ready = d.inform("READY=1", "STATUS="+line)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(notifyEvery):
		}
	}
}

// line is the status of the node in one line.
func (d *Daemon) line(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, serve.Timeout)
	defer cancel()
	line, err := d.publisher.Summary(ctx)
	if err != nil {
		line = "the loop does not answer"
	}
	if why := d.unprotected(); why != "" {
		line = why + "; " + line
	}
	if d.dryRun {
		line = "dry run; " + line
	}
	if faults := d.configurationRefused(); faults != "" {
		line = "the new configuration is refused: " + faults + "; " + line
	}
	return line
}

// inform notifies the service manager, and says whether it could.
func (d *Daemon) inform(assignments ...string) bool {
	err := d.service.Notify(assignments...)
	if err != nil {
		d.log.Debug("the service manager is not notified", "error", err)
	}
	return err == nil
}
