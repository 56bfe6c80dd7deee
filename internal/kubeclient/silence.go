package kubeclient

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// A connection can lose its other end without being closed: a firewall, a load balancer or a server
// that is gone drops its packets. It is closed where nothing has arrived for silence, and then no
// answer to probes for unanswered. client-go's own times for HTTP/2 are 30 s and 15 s.
const (
	silence    = 3 * time.Second
	unanswered = 4 * time.Second
)

// noticeSilence has client-go check the connections of HTTP/2, unless the environment has times for it:
// client-go reads them there when it makes a transport.
func noticeSilence() {
	for name, d := range map[string]time.Duration{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": silence, "HTTP2_PING_TIMEOUT_SECONDS": unanswered} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, strconv.Itoa(int(d.Seconds()))) // fails only for a name that is none
		}
	}
}

// keepAlive checks the connections of HTTP/1, which has no probes of its own, by TCP. The last of the
// probes is awaited for an interval, too.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: silence, Interval: unanswered / 4, Count: 4}

// leavesSilent closes the idle connections after a request that was not answered in time: the next
// request would be sent over one of them.
type leavesSilent struct{ next http.RoundTripper }

func (t leavesSilent) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		utilnet.CloseIdleConnectionsFor(t.next)
	}
	return response, err
}

// WrappedRoundTripper returns the transport below.
func (t leavesSilent) WrappedRoundTripper() http.RoundTripper { return t.next }
