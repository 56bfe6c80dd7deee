package suite_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/evictd/evictd/test/containerd/node"
)

func TestCrictlShowsWhatRuns(t *testing.T) {
	t.Parallel()
	crictl, err := node.Program("crictl")
	if err != nil {
		t.Skip("skipped:", err)
	}
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		p := n.Pod("seen", node.Spec{})
		var answer struct {
			Containers []struct {
				ID, PodSandboxID, State string
				Labels                  map[string]string
			}
			Stats []struct{ Attributes struct{ ID string } }
		}
		for _, command := range []string{"ps", "stats"} {
			out, err := exec.CommandContext(t.Context(), crictl, "--runtime-endpoint", n.Endpoint(), command, "-o", "json").Output()
			if err != nil {
				t.Fatalf("crictl %s: %v", command, err)
			}
			if err := json.Unmarshal(out, &answer); err != nil {
				t.Fatalf("crictl %s: %v: %s", command, err, out)
			}
		}
		if len(answer.Containers) != 1 || len(answer.Stats) != 1 {
			t.Fatalf("unexpected answer %+v", answer)
		}
		c := answer.Containers[0]
		if c.ID != p.Containers[0].ID || c.PodSandboxID != p.Sandbox || c.State != "CONTAINER_RUNNING" || answer.Stats[0].Attributes.ID != c.ID {
			t.Errorf("unexpected answer %+v", answer)
		}
		mustHave(t, "labels", c.Labels, map[string]string{"io.kubernetes.pod.name": "seen", "io.kubernetes.pod.uid": string(p.UID)})
	})
}
