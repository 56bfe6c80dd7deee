package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/wire"
)

// evictionTimeout bounds one request for an eviction.
const evictionTimeout = 3 * time.Second

// requestEvictions asks for each pod that waits, once. evictd gives up at the
// deadline by itself.
func (p *Publisher) requestEvictions(ctx context.Context) error {
	p.mu.Lock()
	asks := slices.Collect(maps.Values(p.evictionRequests))
	p.mu.Unlock()
	for _, ask := range asks {
		if !p.isRequested(ask.UID) {
			continue
		}
		answer, final := p.request(ctx, &ask)
		if final {
			p.removeRequest(ask.UID)
		}
		p.send(wire.Up{Answer: &answer})
	}
	return nil
}

// isRequested says whether a pod is still to be asked for. One whose time is over is
// not: it goes without leave, and once it is Failed no budget protects it, so that
// asking would delete it and with it what its status says.
func (p *Publisher) isRequested(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ask, asked := p.evictionRequests[uid]
	if asked && !time.Now().Before(ask.Deadline) {
		delete(p.evictionRequests, uid)
		return false
	}
	return asked
}

func (p *Publisher) removeRequest(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.evictionRequests, uid)
}

// request asks the Eviction API. The request is not repeated below: a budget's
// 429 is an answer. A pod that is no more may go.
func (p *Publisher) request(ctx context.Context, ask *wire.Ask) (answer wire.Answer, final bool) {
	namespace, name, _ := strings.Cut(ask.Pod, "/")
	eviction := &policy.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{
			GracePeriodSeconds: &ask.GraceSeconds, Preconditions: metav1.NewUIDPreconditions(string(ask.UID)),
		},
	}
	ctx, cancel := context.WithTimeout(ctx, min(evictionTimeout, time.Until(ask.Deadline)))
	defer cancel()
	err := p.client.CoreV1().RESTClient().Post().AbsPath("/api/v1").Namespace(namespace).Resource("pods").Name(name).
		SubResource("eviction").Body(eviction).MaxRetries(0).Do(ctx).Error()
	p.requests.record("pod eviction", err)
	answer.UID = ask.UID
	switch {
	case err == nil, apierrors.IsNotFound(err), otherUID(err):
		return answer, true
	case apierrors.IsTooManyRequests(err):
		answer.Refused = message(err)
	default:
		answer.Refused = fmt.Sprintf("the Eviction API could not be asked: %v", err)
	}
	return answer, false
}

// message is what the API server says, and the causes it names.
func message(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	var text strings.Builder
	text.WriteString(status.Status().Message)
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			text.WriteString(" " + cause.Message)
		}
	}
	return text.String()
}
