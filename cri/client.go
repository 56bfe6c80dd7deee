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

// client is one connection to the runtime.
type client struct {
	cri.RuntimeServiceClient
	images cri.ImageServiceClient
	conn   *grpc.ClientConn

	mu        sync.Mutex
	endpoint  string
	dialError error // of the last dial; nil where it succeeded
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
	c.endpoint, c.dialError = endpoint, err
	return conn, err
}

// wrap adds the operation to an error. A dial error is returned as it is: gRPC wraps it
// three times.
func (c *client) wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dialError != nil && status.Code(err) == codes.Unavailable {
		return c.dialError
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (c *client) at() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endpoint
}

func (c *client) close() { c.conn.Close() }

// unusable says whether an error is of the connection or of a runtime that does not
// answer, and not of the request.
func unusable(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}
