package cgroup

import (
	"cmp"
	"errors"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// ErrNoPods says that the group of all pods does not exist (yet).
var ErrNoPods = errors.New("no cgroup for pods")

// Pods is the group of all pods, and how the kubelet names the groups below it:
// directories (cgroupfs driver) or systemd slices, which repeat the names of the slices
// above (systemd driver).
type Pods struct {
	path string
}

// PodsAt takes the group at a path as that of all pods, whether it exists or not. A
// name that ends in .slice is the systemd driver's.
func PodsAt(group string) Pods { return Pods{path.Join("/", group)} }

// DefaultPods are the names of the pods' group that the kubelet gives it by its cgroup driver.
const DefaultPods = "kubepods,kubepods.slice"

// FindPods finds the group of the pods below a root: one of the given names, separated by
// commas, or of DefaultPods. If several exist, as after a change of the kubelet's cgroup
// driver, the group that holds pods is found. If none exists the error is ErrNoPods.
func (s *System) FindPods(root, names string) (found Pods, err error) {
	err = ErrNoPods
	for n := range strings.SplitSeq(cmp.Or(names, DefaultPods), ",") {
		p := Pods{path.Join("/", root, n)}
		if notThere(s.dir(memory, p.path)) {
			continue
		}
		if err == nil { // what cannot be listed holds no pods
			if groups, _ := s.PodGroups(p); len(groups) == 0 {
				break
			}
			if groups, _ := s.PodGroups(found); len(groups) > 0 {
				break
			}
		}
		found, err = p, nil
	}
	return found, err
}

// Path is the path of the pods' group.
func (p Pods) Path() string { return p.path }

func (p Pods) systemd() bool { return strings.HasSuffix(p.path, ".slice") }

// classes are the kubelet's groups between the pods' group and the pods. Guaranteed
// pods are directly in the pods' group.
var classes = map[v1.PodQOSClass]string{
	v1.PodQOSGuaranteed: "",
	v1.PodQOSBurstable:  "burstable",
	v1.PodQOSBestEffort: "besteffort",
}

// class returns the path of a class's group, and what the base name of a pod's
// group has before and after the pod's id.
func (p Pods) class(qos v1.PodQOSClass) (parent, prefix, suffix string) {
	name := classes[qos]
	if !p.systemd() {
		return path.Join(p.path, name), "pod", ""
	}
	slice := strings.TrimSuffix(path.Base(p.path), ".slice")
	if name == "" {
		return p.path, slice + "-pod", ".slice"
	}
	slice += "-" + name
	return path.Join(p.path, slice+".slice"), slice + "-pod", ".slice"
}

// Pod is the path of a pod's group as the kubelet names it, whether it exists or
// not. id is the pod's uid, or the value of the annotation
// kubernetes.io/config.hash of a static pod.
func (p Pods) Pod(id string, qos v1.PodQOSClass) string {
	parent, prefix, suffix := p.class(qos)
	if p.systemd() {
		id = strings.ReplaceAll(id, "-", "_")
	}
	return path.Join(parent, prefix+id+suffix)
}

// PodGroup is the group of one pod.
type PodGroup struct {
	ID   string
	QoS  v1.PodQOSClass
	Path string
}

// PodGroups lists the pods that have a group, by class and then by name.
func (s *System) PodGroups(p Pods) ([]PodGroup, error) {
	var found []PodGroup
	for _, qos := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		parent, prefix, suffix := p.class(qos)
		names, err := s.Children(parent)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			id, hasPrefix := strings.CutPrefix(name, prefix)
			id, hasSuffix := strings.CutSuffix(id, suffix)
			if !hasPrefix || !hasSuffix || id == "" {
				continue
			}
			if p.systemd() {
				id = strings.ReplaceAll(id, "_", "-")
			}
			found = append(found, PodGroup{id, qos, path.Join(parent, name)})
		}
	}
	return found, nil
}
