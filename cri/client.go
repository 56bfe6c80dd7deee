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

// maxAnswer bounds what the runtime answers at a time, bytes (kubelet: 16 MiB).
const maxAnswer = 16 << 20

// client is one connection to the runtime.
type client struct {
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	conn   *grpc.ClientConn

	mu       sync.Mutex
	endpoint string
	refused  error // why there was no connection last
}

func newClient(dial Dial, calls *calls) (*client, error) {
	c := &client{}
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"), // of a unix socket
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.dial(ctx, dial) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithUnaryInterceptor(calls.intercept),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, fmt.Errorf("make a client of the container runtime: %w", err)
	}
	c.conn, c.RuntimeServiceClient, c.images = conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	return c, nil
}

func (c *client) dial(ctx context.Context, dial Dial) (net.Conn, error) {
	conn, endpoint, err := dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoint, c.refused = endpoint, err
	return conn, err
}

// explain says what went wrong: the dialer's own words where there was no
// connection, for gRPC's wrap them thrice.
func (c *client) explain(doing string, err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refused != nil && status.Code(err) == codes.Unavailable {
		return c.refused
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (c *client) at() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoint
}

func (c *client) close() { c.conn.Close() }

// unusable says whether an error is of the connection or of a runtime that does
// not answer, and not of what was asked.
func unusable(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}
