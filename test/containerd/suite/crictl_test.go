package suite_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/containerd/node"
)

func TestStatusShowsTheImagesOfCrictlAndWhichOfThemAreUnused(t *testing.T) {
	t.Parallel()
	crictl, err := node.Program("crictl")
	if err != nil {
		t.Skip("skipped:", err)
	}
	node.Each(t, func(t *testing.T, v node.Version) {
		n := node.Start(t, v, node.Options{})
		n.Import(node.Image{Name: "localhost/unused:1", Bytes: node.MiB}, node.Image{Name: "localhost/unused:2", Bytes: 3 * node.MiB},
			node.Image{Name: "localhost/used:1"}, node.Image{Name: "localhost/ended:1"}, node.Image{Name: "localhost/kept:1", Pinned: true})
		n.Pod("used", node.Spec{Image: "localhost/used:1"})
		n.Pod("ended", node.Spec{Image: "localhost/ended:1", Orders: []string{"exit 0"}}).Containers[0].AwaitExit()
		e := n.Evictd()
		e.AwaitPods(2)
		var listed struct {
			Images []struct {
				ID, Size string
				RepoTags []string
				Pinned   bool
			}
			Containers []struct{ ImageID, ImageRef string }
		}
		for _, command := range [][]string{{"images"}, {"ps", "-a"}} {
			out, err := exec.CommandContext(t.Context(), crictl, append(append([]string{"--runtime-endpoint", n.Endpoint()}, command...), "-o", "json")...).Output()
			if err == nil {
				err = json.Unmarshal(out, &listed)
			}
			if err != nil {
				t.Fatalf("crictl %s: %v", command, err)
			}
		}
		var want []string
		for _, image := range listed.Images {
			bytes, err := strconv.ParseInt(image.Size, 10, 64)
			require.NoError(t, err)
			would := resource.NewQuantity(bytes&^1023, resource.BinarySI).String()
			for _, c := range listed.Containers {
				if c.ImageID == image.ID || c.ImageRef == image.ID {
					would = "in-use"
				}
			}
			if image.Pinned || image.RepoTags[0] == "localhost/pause:1" { // 1.6 pins none
				would = "pinned"
			}
			want = append(want, image.ID+" "+would)
		}
		slices.Sort(want)
		var got []string
		node.Await(t, fmt.Sprintf("evictd to show the images of crictl: %q", want), func() bool {
			got = nil
			status := e.Status()
			for _, r := range append(status.Reclaimable, status.Unreclaimable...) {
				if r.Kind == "image" && r.WouldFree == "" {
					got = append(got, r.ID+" "+r.Why)
				} else if r.Kind == "image" {
					got = append(got, r.ID+" "+r.WouldFree)
				}
			}
			slices.Sort(got)
			return len(got) == len(want)
		})
		if !slices.Equal(got, want) {
			t.Errorf("evictd shows\n%q\ncrictl shows\n%q", got, want)
		}
	})
}

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
