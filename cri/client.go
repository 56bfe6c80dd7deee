package cri

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxAnswer bounds one answer of the runtime, bytes (kubelet: 16 MiB).
const maxAnswer = 16 << 20

// client is one connection to the runtime. It never connects again.
type client struct {
	cri.RuntimeServiceClient
	images   cri.ImageServiceClient
	grpc     *grpc.ClientConn
	endpoint string
	lost     chan struct{} // closed with the connection
}

// newClient connects to the last endpoint or to the next one, see Dial.
func newClient(ctx context.Context, dial Dial, calls *calls, last string, next bool) (*client, error) {
	connecting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, endpoint, err := dial(connecting, last, next)
	if err != nil {
		return nil, err
	}
	c := &client{endpoint: endpoint, lost: make(chan struct{})}
	once := make(chan net.Conn, 1)
	once <- &reportingConn{Conn: conn, closed: sync.OnceFunc(func() { close(c.lost) })}
	c.grpc, err = grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // of a unix socket
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			select {
			case conn := <-once:
				return conn, nil
			default:
				return nil, errLost
			}
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithUnaryInterceptor(calls.intercept),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("make a client of the container runtime: %w", err)
	}
	c.RuntimeServiceClient, c.images = cri.NewRuntimeServiceClient(c.grpc), cri.NewImageServiceClient(c.grpc)
	return c, nil
}

// Ask asks the runtime behind a unix socket for its name and version.
func Ask(ctx context.Context, path string) (name, version string, err error) {
	c, err := newClient(ctx, func(ctx context.Context, _ string, _ bool) (net.Conn, string, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		return conn, path, err
	}, newCalls(), "", false)
	if err != nil {
		return "", "", err
	}
	defer c.close()
	answer, err := c.Version(ctx, &cri.VersionRequest{})
	return answer.GetRuntimeName(), answer.GetRuntimeVersion(), err
}

// reportingConn calls closed when it is closed.
type reportingConn struct {
	net.Conn
	closed func()
}

func (c *reportingConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

func (c *client) close() { c.grpc.Close() }

// isAway reports whether an order has no answer of the runtime: it may have been carried out or not.
func isAway(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}
