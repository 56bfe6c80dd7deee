package kube

import (
	"errors"

	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	events "k8s.io/client-go/kubernetes/typed/events/v1"
	lifecycle "k8s.io/client-go/kubernetes/typed/lifecycle/v1alpha1"
	"k8s.io/client-go/rest"
)

// Client is what a Publisher uses of a kubernetes.Interface.
type Client interface {
	CoreV1() core.CoreV1Interface
	CoordinationV1() coordination.CoordinationV1Interface
	EventsV1() events.EventsV1Interface
	LifecycleV1alpha1() lifecycle.LifecycleV1alpha1Interface
}

// groups is a Client of four API groups. The Clientset of client-go links the code of all of them.
type groups struct {
	core         *core.CoreV1Client
	coordination *coordination.CoordinationV1Client
	events       *events.EventsV1Client
	lifecycle    *lifecycle.LifecycleV1alpha1Client
}

func (g *groups) CoreV1() core.CoreV1Interface                            { return g.core }
func (g *groups) CoordinationV1() coordination.CoordinationV1Interface    { return g.coordination }
func (g *groups) EventsV1() events.EventsV1Interface                      { return g.events }
func (g *groups) LifecycleV1alpha1() lifecycle.LifecycleV1alpha1Interface { return g.lifecycle }

// NewClient makes a Client whose groups share connections.
func NewClient(cfg *rest.Config) (Client, error) {
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	var g groups
	var faults [4]error
	g.core, faults[0] = core.NewForConfigAndClient(cfg, shared)
	g.coordination, faults[1] = coordination.NewForConfigAndClient(cfg, shared)
	g.events, faults[2] = events.NewForConfigAndClient(cfg, shared)
	g.lifecycle, faults[3] = lifecycle.NewForConfigAndClient(cfg, shared)
	return &g, errors.Join(faults[:]...)
}
