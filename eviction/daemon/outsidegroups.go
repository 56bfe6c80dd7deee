package daemon

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction/config"
	"github.com/evictd/evictd/internal/cli"
	"github.com/evictd/evictd/internal/podspec"
)

// outsideGroups are the cgroups outside of the pods that may be evicted. One goroutine uses them.
type outsideGroups struct {
	cgroups *cgroup.System
	root    string
	paths   []string // below root
	finds   bool     // the containers, which no source of pods has
	// groups are those that exist.
	groups []outsideGroup
}

// outsideGroup is a cgroup, with its path below root.
type outsideGroup struct {
	path     string
	manifest *v1.Pod
}

// newOutsideGroups refuses a cgroup that has evictd or the pods in it, or that is in the cgroup of the pods.
func newOutsideGroups(n *node, podsGroup string, paths []string) (*outsideGroups, error) {
	if len(paths) > 0 && n.cgroups == nil {
		return nil, cli.BadInput(fmt.Errorf("outside[0]: %q: this node has no cgroups", paths[0]))
	}
	for i, group := range paths {
		at := path.Join(n.root, group)
		switch {
		case config.Within(n.cgroups.Self(), at):
			return nil, cli.BadInput(fmt.Errorf("outside[%d]: %q: evictd runs in it", i, group))
		case config.Within(podsGroup, at) || config.Within(at, podsGroup):
			return nil, cli.BadInput(fmt.Errorf("outside[%d]: %q: the cgroup of the pods is %s", i, group, podsGroup))
		}
	}
	return &outsideGroups{cgroups: n.cgroups, root: n.root, paths: paths}, nil
}

// look reads which of the groups exist and what protects them, and says whether that has changed.
func (o *outsideGroups) look() (changed bool) {
	var all []foundGroup
	for _, group := range o.paths {
		all = append(all, foundGroup{"", group, group})
	}
	if o.finds {
		for _, f := range findGroups(o.cgroups, o.root) {
			if !slices.ContainsFunc(o.paths, func(listed string) bool { return config.Within(f.path, listed) || config.Within(listed, f.path) }) {
				all = append(all, f)
			}
		}
	}
	var found []outsideGroup
	for _, f := range all {
		if p, err := o.cgroups.Protection(path.Join(o.root, f.path)); err == nil {
			found = append(found, outsideGroup{f.path, f.manifest(&p)})
		}
	}
	if reflect.DeepEqual(found, o.groups) {
		return false
	}
	o.groups = found
	return true
}

// awaits reports whether the field outside lists a cgroup that does not exist.
func (o *outsideGroups) awaits() bool { return len(o.groups) < len(o.paths) }

// String lists the groups by their names.
func (o *outsideGroups) String() string {
	var names []string
	for _, g := range o.groups {
		names = append(names, strings.TrimPrefix(g.manifest.Namespace+"/"+g.manifest.Name, "/"))
	}
	return strings.Join(names, ", ")
}

// groupManifest is a cgroup outside of the pods as podspec.Cgroup says.
func groupManifest(group string, p *cgroup.Protection) *v1.Pod {
	m := &v1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: podspec.Cgroup},
		ObjectMeta: metav1.ObjectMeta{Name: group, UID: types.UID("cgroup-" + strconv.FormatUint(p.ID, 10))},
	}
	if p.Low > 0 {
		m.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(p.Low, resource.BinarySI)}}
	}
	switch {
	case p.Omit:
		m.Annotations = map[string]string{podspec.OOMPreference: podspec.OOMOmit}
	case p.Avoid:
		m.Annotations = map[string]string{podspec.OOMPreference: podspec.OOMAvoid}
	}
	return m
}
