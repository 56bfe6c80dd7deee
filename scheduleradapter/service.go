package scheduleradapter

import (
	"context"
	"time"

	"github.com/evictd/evictd/scheduleradapter/statuspage"
)

// probeInterval is the interval, and the timeout, of requests to an API server whose
// lists have not arrived.
const probeInterval = 2 * time.Second

// notifyService notifies systemd of readiness, state and stop. The loop's goroutine
// sends the watchdog's keep-alive.
func (d *daemon) notifyService(ctx context.Context) {
	d.notify("READY=1")
	defer d.notify("STOPPING=1")
	tick := time.NewTicker(statuspage.Interval)
	defer tick.Stop()
	for last := ""; ; {
		if state := d.state(); state != last && d.notify("STATUS="+state) {
			last = state
		}
		d.loop.Do(func() { d.service.Heartbeat(time.Now()) })
		d.figures.Take(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// state is the text of the scheduler's state, for people.
func (d *daemon) state() string {
	select {
	case <-d.leads:
		return "schedules"
	default:
	}
	if d.watch.Ready() {
		return "synced; another scheduler leads"
	}
	return "waits for the API server"
}

// probeAPIServer logs why the API server does not answer, until the informers have
// synced. Informers do not log refused connections.
func (d *daemon) probeAPIServer(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if d.watch.Ready() {
			return
		}
		err := d.client.CoreV1().RESTClient().Get().AbsPath("/version").Timeout(probeInterval).Do(ctx).Error()
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			d.log.Warn("the API server does not answer", "error", err)
		}
	}
}

func (d *daemon) notify(assignment string) bool {
	err := d.service.Notify(assignment)
	if err != nil {
		d.log.Debug("service manager is not notified", "error", err)
	}
	return err == nil
}
