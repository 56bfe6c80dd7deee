package daemon

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/config"
)

// engineGroups are where container engines have the cgroups of their containers, below the node's: the first pattern
// that matches counts. prefix and suffix are around the name of a container.
var engineGroups = []struct{ engine, pattern, prefix, suffix string }{
	{"docker", "docker/*", "", ""}, // cgroupfs driver
	{"docker", "system.slice/docker-*.scope", "docker-", ".scope"},
	{"podman", "libpod_parent/libpod-*", "libpod-", ""}, // cgroupfs manager
	{"podman", "machine.slice/libpod-*.scope", "libpod-", ".scope"},
	{"podman", "machine.slice/machine-libpod_pod_*.slice/libpod-*.scope", "libpod-", ".scope"},
	{"podman", "user.slice/user-*.slice/user@*.service/user.slice/libpod-*.scope", "libpod-", ".scope"},
	{"nspawn", "machine.slice/systemd-nspawn@*.service", "systemd-nspawn@", ".service"},
	{"nspawn", "machine.slice/machine-*.scope", "machine-", ".scope"},
	{"lxc", "lxc.payload.*", "lxc.payload.", ""},
	{"lxc", "lxc.payload/*", "", ""},
}

// foundGroup is a container that was found by its cgroup; without an engine it is a cgroup that outside lists.
type foundGroup struct{ engine, path, name string }

// findGroups finds the containers below a cgroup, except that in which evictd runs.
func findGroups(cgroups *cgroup.System, root string) (found []foundGroup) {
	for _, e := range engineGroups {
		for _, at := range cgroups.Find(root, e.pattern) {
			name := strings.TrimSuffix(strings.TrimPrefix(path.Base(at), e.prefix), e.suffix)
			known := slices.ContainsFunc(found, func(f foundGroup) bool { return config.Within(at, f.path) })
			if known || strings.HasPrefix(name, "conmon-") || config.Within(cgroups.Self(), path.Join(root, at)) {
				continue
			}
			if len(name) == 64 { // the id of a container, shown as the engines do
				name = name[:12]
			}
			found = append(found, foundGroup{e.engine, at, name})
		}
	}
	return found
}

// manifest describes the container as a pod with one container, in a namespace with the name of the engine.
func (f *foundGroup) manifest(p *cgroup.Protection) *v1.Pod {
	m := groupManifest(f.path, p)
	if f.engine != "" {
		m.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		m.Namespace, m.Name, m.UID = f.engine, f.name, types.UID(f.engine+"-"+string(m.UID))
		m.Spec.Containers = []v1.Container{{Name: f.engine}}
	}
	return m
}
