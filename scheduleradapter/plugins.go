package scheduleradapter

import (
	"context"
	"log/slog"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"

	"github.com/evictd/evictd/scheduleradapter/nodetable"
	"github.com/evictd/evictd/scheduleradapter/outoftree"
)

// plugins are the foreign ones of a daemon, with what is theirs of the API server.
// There may be none: nil.
type plugins struct {
	runs   *outoftree.Host
	end    context.CancelFunc
	events events.EventBroadcaster
}

// newPlugins prepares them, to work until ctx ends.
func (p *program) newPlugins(ctx context.Context, d *daemon, how *rest.Config, table *nodetable.Table) (*plugins, error) {
	if len(p.plugins) == 0 {
		return nil, nil
	}
	own := &plugins{events: events.NewBroadcaster(&events.EventSinkImpl{Interface: d.client.EventsV1()})}
	ctx, own.end = context.WithCancel(ctx)
	var err error
	own.runs, err = p.host(ctx, d.cfg, table, outoftree.API{
		Client: d.client, Informers: d.informers, Config: how, Recorder: own.events.NewRecorder(scheme.Scheme, "evictd-scheduler"),
	}, d.log)
	return own, err
}

// host runs them; nil without any.
func (p *plugins) host() *outoftree.Host {
	if p == nil {
		return nil
	}
	return p.runs
}

// run has their events recorded, and lets them work until ctx ends. The function
// it returns ends the recording.
func (p *plugins) run(ctx context.Context, log *slog.Logger) (stop func()) {
	if p == nil {
		return func() {}
	}
	context.AfterFunc(ctx, p.end)
	if err := p.events.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		log.Error("events of plugins are not recorded", "error", err)
	}
	return p.events.Shutdown
}

// synced waits for what they watch; false where ctx ends before.
func (p *plugins) synced(ctx context.Context, informers informers.SharedInformerFactory) bool {
	if p == nil {
		return true
	}
	informers.WaitForCacheSync(ctx.Done())
	return ctx.Err() == nil
}
