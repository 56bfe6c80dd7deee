package suite_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/test/containerd/node"
)

func TestFrozenContainerdAnswersNothingUntilItIsThawed(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("steady", node.Spec{})
		n.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := n.Runtime.Version(ctx, &runtime.VersionRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a stopped containerd answered: %v", err)
		}
		p.Do("hold", node.MiB)
		n.Thaw()
		node.Call(n, n.Runtime.Version, &runtime.VersionRequest{})
	})
}

func TestPodsSurviveTheEndOfContainerd(t *testing.T) {
	t.Parallel()
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		lives, ends := n.Pod("lives", node.Spec{}), n.Pod("ends", node.Spec{})
		lives.Do("hold", node.MiB)
		ends.Do("hold", node.MiB)
		before := n.Pid()
		n.Kill()
		if !lives.Lives() || !ends.Lives() {
			t.Error("pods died with containerd")
		}
		if _, err := n.Runtime.Version(t.Context(), &runtime.VersionRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a killed containerd answered: %v", err)
		}
		lives.Do("hold", 2*node.MiB)
		n.Restart()
		if n.Pid() == before {
			t.Error("the same process as before")
		}
		ends.Stop(5)
		ends.AwaitEnd()
		if pods := node.Call(n, n.Runtime.ListPodSandbox, &runtime.ListPodSandboxRequest{}).Items; len(pods) != 2 || !lives.Lives() {
			t.Errorf("pods %v, want the two of before", pods)
		}
	})
}
