package cri

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wire"
)

// What a runtime reports completely fills every field of the inventory, and reaches evictd.
// A field that the recipe for a CRI field in docs/CONTRIBUTING.md did not get this far fails here.
func TestEveryFieldOfTheInventoryIsFilledAndSent(t *testing.T) {
	score, image := int64(900), map[string]string{"registry/app:1": "sha256:1", "registry/pause:3": "sha256:2"}
	container := containerOf(&cri.Container{
		Id: "c1", PodSandboxId: "s1", Metadata: &cri.ContainerMetadata{Name: "app", Attempt: 2}, State: cri.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1e9, Image: &cri.ImageSpec{Image: "registry/app:1"}, Annotations: map[string]string{graceAnnotation: "30"},
	}, detail{
		cgroup: "cri-c1", oom: &score, memory: 1 << 20,
		status: &cri.ContainerStatus{
			FinishedAt: 3e9, LogPath: "/var/log/pods/app/0.log",
			Mounts: []*cri.Mount{{Image: &cri.ImageSpec{Image: "registry/app:1"}}},
		},
	}, image)
	sandbox := sandboxOf(&cri.PodSandbox{
		Id: "s1", Metadata: &cri.PodSandboxMetadata{Uid: "u", Namespace: "shop", Name: "web", Attempt: 1}, State: cri.PodSandboxState_SANDBOX_READY,
		CreatedAt: 1e9, Annotations: map[string]string{podAnnotations[0]: "api"},
	}, detail{cgroup: "/kubepods/podu", image: "registry/pause:3"}, image)
	held := imageOf(&cri.Image{Id: "sha256:1", RepoTags: []string{"registry/app:1"}, RepoDigests: []string{"registry/app@sha256:1"}, Size: 1 << 20, Pinned: true}, false)
	measured := int64(4096)
	layer := inventory.Layer{Container: "c1", Bytes: &measured, Inodes: &measured, At: time.Unix(4, 0)}

	sent := wire.FromAgent{Sandbox: &sandbox, Container: &container, Image: &held, Layers: []inventory.Layer{layer}}
	message, err := json.Marshal(sent)
	require.NoError(t, err)
	var received wire.FromAgent
	require.NoError(t, json.Unmarshal(message, &received))
	for _, value := range []any{*received.Sandbox, *received.Container, *received.Image, received.Layers[0]} {
		v := reflect.ValueOf(value)
		for i := range v.NumField() {
			// The writable layer has messages of its own.
			if field := v.Type().Field(i); field.Name != "Layer" && v.Field(i).IsZero() {
				t.Errorf("%v.%s does not reach evictd", v.Type(), field.Name)
			}
		}
	}
}
