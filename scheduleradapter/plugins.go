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

// plugins are the out-of-tree plugins of a daemon with their event broadcaster; nil:
// there are none.
type plugins struct {
	hosted *outoftree.Host
	cancel context.CancelFunc
	events events.EventBroadcaster
}

// newPlugins makes the host of the plugins. Their context ends with ctx.
func (p *program) newPlugins(ctx context.Context, d *daemon, restConfig *rest.Config, table *nodetable.Table) (*plugins, error) {
	if len(p.plugins) == 0 {
		return nil, nil
	}
	own := &plugins{events: events.NewBroadcaster(&events.EventSinkImpl{Interface: d.client.EventsV1()})}
	ctx, own.cancel = context.WithCancel(ctx)
	var err error
	own.hosted, err = p.host(ctx, d.cfg, table, outoftree.API{
		Client: d.client, Informers: d.informers, Config: restConfig, Recorder: own.events.NewRecorder(scheme.Scheme, "evictd-scheduler"),
	}, d.log)
	return own, err
}

func (p *plugins) host() *outoftree.Host {
	if p == nil {
		return nil
	}
	return p.hosted
}

// run starts the event broadcaster and cancels the plugins when ctx ends. stop ends
// the broadcaster.
func (p *plugins) run(ctx context.Context, log *slog.Logger) (stop func()) {
	if p == nil {
		return func() {}
	}
	context.AfterFunc(ctx, p.cancel)
	if err := p.events.StartRecordingToSinkWithContext(context.WithoutCancel(ctx)); err != nil {
		log.Error("events of plugins are not recorded", "error", err)
	}
	return p.events.Shutdown
}

// synced waits for the informers of the plugins; false: ctx has ended before.
func (p *plugins) synced(ctx context.Context, informers informers.SharedInformerFactory) bool {
	if p == nil {
		return true
	}
	informers.WaitForCacheSync(ctx.Done())
	return ctx.Err() == nil
}
