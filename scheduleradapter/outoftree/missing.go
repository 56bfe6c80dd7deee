package outoftree

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// API is what there is of an API server. Where there is none, Missing says why,
// and whoever uses what takes its place is told. Informers are started by who gave
// them, once the plugins are made.
type API struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Config    *rest.Config
	Recorder  events.EventRecorderLogger
	Missing   string
}

// orMissing puts what tells of its absence in the place of what is absent.
func (a API) orMissing(log *slog.Logger) (API, error) {
	if a.Missing == "" {
		return a, nil
	}
	why := errors.New(a.Missing)
	config := &rest.Config{Host: "http://missing.invalid", Transport: failing{why}, QPS: -1}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return API{}, fmt.Errorf("client without an API server: %w", err)
	}
	a.Client, a.Config, a.Recorder = client, config, deaf{log, why}
	a.Informers = informers.NewSharedInformerFactory(client, 0)
	return a, nil
}

// report tells of every kind of object that a plugin wants to watch and cannot. The
// informers are started with nothing to do, as that is how to learn of them.
func (a API) report(log *slog.Logger) {
	if a.Missing == "" {
		return
	}
	over := make(chan struct{})
	close(over)
	a.Informers.Start(over)
	a.Informers.Shutdown()
	for kind := range a.Informers.WaitForCacheSync(over) {
		log.Error("a plugin watches objects that never come", "kind", kind.Elem().String(), "why", a.Missing)
	}
}

// err is why there is no API server; nil where there is one.
func (a API) err() error {
	if a.Missing == "" {
		return nil
	}
	return errors.New(a.Missing)
}

// failing is the transport to a server that does not exist.
type failing struct{ why error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.why }

// deaf is the recorder of events that go nowhere.
type deaf struct {
	log *slog.Logger
	why error
}

func (d deaf) WithLogger(klog.Logger) events.EventRecorderLogger { return d }

// Eventf logs what would have been recorded.
func (d deaf) Eventf(_, _ runtime.Object, _, reason, action, note string, args ...any) {
	d.log.Error("event is not recorded", "reason", reason, "action", action, "note", fmt.Sprintf(note, args...), "why", d.why.Error())
}
