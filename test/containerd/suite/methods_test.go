package suite_test

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

// old says whether a node's containerd is of 1.6, as in Debian 12.
func old(n *node.Node) bool {
	return strings.HasPrefix(node.Call(n, n.Runtime.Version, &runtime.VersionRequest{}).RuntimeVersion, "1.6.")
}

// younger are the methods that containerd 1.6 does not implement.
var younger = map[string]func(context.Context, *node.Node) error{
	"RuntimeConfig": func(ctx context.Context, n *node.Node) error {
		_, err := n.Runtime.RuntimeConfig(ctx, &runtime.RuntimeConfigRequest{})
		return err
	},
	"ListMetricDescriptors": func(ctx context.Context, n *node.Node) error {
		_, err := n.Runtime.ListMetricDescriptors(ctx, &runtime.ListMetricDescriptorsRequest{})
		return err
	},
	"ListPodSandboxMetrics": func(ctx context.Context, n *node.Node) error {
		_, err := n.Runtime.ListPodSandboxMetrics(ctx, &runtime.ListPodSandboxMetricsRequest{})
		return err
	},
}

func TestOldContainerdLacksMethods(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		for name, call := range younger {
			want := codes.OK
			if old(n) {
				want = codes.Unimplemented
			}
			if err := call(t.Context(), n); status.Code(err) != want {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	})
}

func TestOldContainerdHasNoEvents(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		events, err := n.Runtime.GetContainerEvents(t.Context(), &runtime.GetEventsRequest{})
		require.NoError(t, err)
		if old(n) {
			if event, err := events.Recv(); status.Code(err) != codes.Unimplemented {
				t.Errorf("event %v, %v, want %v", event, err, codes.Unimplemented)
			}
			return
		}
		p := n.Pod("brief", node.Spec{})
		p.Stop(5)
		for {
			event, err := events.Recv()
			require.NoError(t, err)
			if event.ContainerId == p.Containers[0].ID && event.ContainerEventType == runtime.ContainerEventType_CONTAINER_STOPPED_EVENT {
				return
			}
		}
	})
}
