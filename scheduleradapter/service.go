package scheduleradapter

import (
	"context"
	"time"
)

// attendEvery is how often the service manager is told of the scheduler: well
// within the interval of its watchdog.
const attendEvery = 5 * time.Second

// complainEvery is how often an API server is asked that has told nothing yet, and
// how long it may take to answer.
const complainEvery = 2 * time.Second

// attend tells the service manager that the scheduler is there, how far it is, and
// while the loop runs that it does: the loop itself beats.
func (d *daemon) attend(ctx context.Context) {
	d.inform("READY=1")
	defer d.inform("STOPPING=1")
	tick := time.NewTicker(attendEvery)
	defer tick.Stop()
	for last := ""; ; {
		if standing := d.standing(); standing != last && d.inform("STATUS="+standing) {
			last = standing
		}
		d.loop.Do(func() { d.service.Heartbeat(time.Now()) })
		d.figures.take(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (d *daemon) standing() string {
	select {
	case <-d.leads:
		return "schedules"
	default:
	}
	if d.watch.Ready() {
		return "the cluster is known; another scheduler leads"
	}
	return "waits for the API server to tell of the cluster"
}

// complain says why the API server does not answer, until the cluster is known:
// informers keep silent of one that refuses connections.
func (d *daemon) complain(ctx context.Context) {
	tick := time.NewTicker(complainEvery)
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
		err := d.client.CoreV1().RESTClient().Get().AbsPath("/version").Timeout(complainEvery).Do(ctx).Error()
		if err != nil && ctx.Err() == nil && err.Error() != last {
			last = err.Error()
			d.log.Warn("the API server does not answer", "error", err)
		}
	}
}

// inform tells the service manager, which may not read just now.
func (d *daemon) inform(assignment string) bool {
	err := d.service.Notify(assignment)
	if err != nil {
		d.log.Debug("the service manager is not told", "error", err)
	}
	return err == nil
}
