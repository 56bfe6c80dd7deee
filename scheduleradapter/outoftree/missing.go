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

// API is the API server. Without one, Missing is the reason, which all calls
// return. The owner of Informers starts them after the plugins are made.
type API struct {
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Config    *rest.Config
	Recorder  events.EventRecorderLogger
	Missing   string
}

// orMissing replaces missing parts by ones that return errors.
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
	a.Client, a.Config, a.Recorder = client, config, logRecorder{log, why}
	a.Informers = informers.NewSharedInformerFactory(client, 0)
	return a, nil
}

// report logs the kinds of objects that plugins watch without an API server. It
// starts the informers with an ended context to list them.
func (a API) report(log *slog.Logger) {
	if a.Missing == "" {
		return
	}
	over := make(chan struct{})
	close(over)
	a.Informers.Start(over)
	a.Informers.Shutdown()
	for kind := range a.Informers.WaitForCacheSync(over) {
		log.Error("plugin watches objects without an API server", "kind", kind.Elem().String(), "reason", a.Missing)
	}
}

// err is why there is no API server; nil: there is one.
func (a API) err() error {
	if a.Missing == "" {
		return nil
	}
	return errors.New(a.Missing)
}

// failing is an HTTP transport that returns an error.
type failing struct{ why error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.why }

// logRecorder is an event recorder that logs events.
type logRecorder struct {
	log *slog.Logger
	why error
}

func (d logRecorder) WithLogger(klog.Logger) events.EventRecorderLogger { return d }

func (d logRecorder) Eventf(_, _ runtime.Object, _, reason, action, note string, args ...any) {
	d.log.Error("event is not recorded", "reason", reason, "action", action, "note", fmt.Sprintf(note, args...), "error", d.why.Error())
}
