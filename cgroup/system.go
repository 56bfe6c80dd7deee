package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Version is the version of the hierarchy that the memory controller lives in.
type Version int

// The two versions.
const (
	V1 Version = 1
	V2 Version = 2
)

func (v Version) String() string { return fmt.Sprintf("v%d", int(v)) }

// ErrNoMemoryController says that no mounted hierarchy has the memory controller:
// nothing can be measured on this host.
var ErrNoMemoryController = errors.New("no mounted cgroup hierarchy has the memory controller")

// RootError says why a path cannot be the root group.
type RootError struct {
	Path string // as it was given
	Err  error
}

func (e *RootError) Error() string { return fmt.Sprintf("cgroup root %s: %v", e.Path, e.Err) }

// Unwrap returns the cause.
func (e *RootError) Unwrap() error { return e.Err }

// The hierarchies a group can have a directory in. On v2 they are all one.
type hierarchy int

const (
	memory hierarchy = iota
	pids
	cpu
	freezer
	unified
	numHierarchies
)

var controllers = [numHierarchies]string{"memory", "pids", "cpu", "freezer", ""}

// System is the cgroup hierarchies of one host. It does not change after
// Discover, and any goroutine may use it.
type System struct {
	host    string
	version Version
	mounts  []mount                // every cgroup mount, as the mount table shows it
	of      [numHierarchies]*mount // nil where no such hierarchy is mounted
	self    string
	room    *Room
}

// Room is shared by all that keep groups of pods open.
func (s *System) Room() *Room { return s.room }

// Discover finds the hierarchies of /proc/self/mountinfo. host is prepended to every
// path that is opened: "" on the host itself, or a directory with proc and sys. The
// error is ErrNoMemoryController where nothing can be measured.
func Discover(host string) (*System, error) {
	table, err := os.Open(host + "/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	defer table.Close()
	mounts, err := readMounts(table)
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	s := &System{host: host, version: V1, mounts: mounts, room: newRoom()}
	for h := range numHierarchies {
		s.of[h] = choose(mounts, controllers[h])
	}
	if s.of[memory] == nil {
		if s.of[unified] == nil || !s.unifiedHas("memory") {
			return nil, ErrNoMemoryController
		}
		s.version = V2
		for h := range unified {
			s.of[h] = s.of[unified]
		}
	}
	if s.self, err = s.ownPath(); err != nil {
		return nil, err
	}
	return s, nil
}

// choose returns the mount with the largest part of the hierarchy of a controller, the
// first among equals: containers mount parts of it. "" is v2.
func choose(mounts []mount, controller string) *mount {
	var best *mount
	for i := range mounts {
		m := &mounts[i]
		if m.has(controller) && (best == nil || len(m.root) < len(best.root)) {
			best = m
		}
	}
	return best
}

func (s *System) unifiedHas(controller string) bool {
	list, err := os.ReadFile(s.host + path.Join(s.of[unified].point, "cgroup.controllers"))
	return err == nil && slices.Contains(strings.Fields(string(list)), controller)
}

// ownPath is the path of this process in the hierarchy of the memory controller, or ""
// where its group is outside the mount (cgroup_namespaces(7)).
func (s *System) ownPath() (string, error) {
	list, err := os.ReadFile(s.host + "/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("find own cgroup: %w", err)
	}
	want := "" // the v2 line is "0::PATH"
	if s.version == V1 {
		want = controllers[memory]
	}
	for line := range strings.Lines(string(list)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, own, _ := strings.Cut(rest, ":")
		if slices.Contains(strings.Split(names, ","), want) {
			own, _ = below(s.of[memory].root, own)
			return own, nil
		}
	}
	return "", nil
}

// Version is the version of the hierarchy with the memory controller.
func (s *System) Version() Version { return s.version }

// Self is this process's own group, or "" where it cannot be seen from here.
func (s *System) Self() string { return s.self }

// Mount is the mount point of the hierarchy of a controller ("memory", "pids",
// "cpu", "freezer"; "" is v2), or "" where there is none.
func (s *System) Mount(controller string) string {
	h := slices.Index(controllers[:], controller)
	if h < 0 || s.of[h] == nil {
		return ""
	}
	return s.of[h].point
}

// Resolve reduces a configured root to a path of this package and checks that its
// memory can be measured. It accepts a path as in /proc/self/cgroup, or one that begins
// with the mount point of a hierarchy; "" is the root of the hierarchy. The error is a
// *RootError. With the path of a group that cannot be measured, or does not exist, it may be able to later.
func (s *System) Resolve(root string) (string, error) {
	if root != "" && !path.IsAbs(root) {
		return "", &RootError{root, errors.New("not an absolute path")}
	}
	group := s.reduce(path.Join("/", root))
	if err := s.measurable(group); err != nil {
		return group, &RootError{root, err}
	}
	return group, nil
}

func (s *System) reduce(root string) string {
	longest := ""
	group := root
	for _, m := range s.mounts {
		if rest, ok := below(m.point, root); ok && len(m.point) > len(longest) {
			longest, group = m.point, rest
		}
	}
	if longest != "" {
		return group
	}
	if rest, ok := below(s.of[memory].root, root); ok {
		return rest
	}
	return root
}

func (s *System) measurable(group string) error {
	g, err := s.Open(group)
	if err != nil {
		return err
	}
	defer g.Close()
	usage, err := g.Usage()
	if err == nil && !usage.IsKnown() {
		err = errors.New("the memory controller is not enabled for it")
	}
	return err
}

// dir is the directory of a group in a hierarchy.
func (s *System) dir(h hierarchy, group string) string {
	return s.host + path.Join(s.of[h].point, path.Join("/", group))
}

// VisiblePath converts a path of the kernel's log, which begins at the root of the
// hierarchy. ok is false for a group outside the mount.
func (s *System) VisiblePath(group string) (path string, ok bool) {
	return below(s.of[memory].root, group)
}

// Children returns the names of the groups directly below a group, sorted; none
// where the group does not exist.
func (s *System) Children(group string) ([]string, error) {
	entries, err := os.ReadDir(s.dir(memory, group))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("list children of cgroup %s: %w", group, err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// below returns what is left of a path under a prefix of whole components,
// beginning with a slash.
func below(prefix, p string) (string, bool) {
	rest, ok := strings.CutPrefix(p, strings.TrimSuffix(prefix, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return path.Join("/", rest), true
}
