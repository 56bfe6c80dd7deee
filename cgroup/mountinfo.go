package cgroup

import (
	"io"
	"slices"

	"github.com/evictd/evictd/internal/procfs"
)

// mount is one mounted cgroup hierarchy, from /proc/self/mountinfo.
type mount struct {
	root    string   // the group that is mounted, "/" being the whole hierarchy
	point   string   // where
	v2      bool     // a cgroup2 mount
	options []string // super options; on v1 they name the controllers
}

// has says whether the hierarchy is that of a v1 controller, or v2 for "".
func (m *mount) has(controller string) bool {
	return m.v2 == (controller == "") && (m.v2 || slices.Contains(m.options, controller))
}

// readMounts returns the cgroup mounts, in the order of the table.
func readMounts(mountinfo io.Reader) (mounts []mount, err error) {
	all, err := procfs.ReadMounts(mountinfo)
	for _, m := range all {
		if m.Type == "cgroup" || m.Type == "cgroup2" {
			mounts = append(mounts, mount{m.Root, m.Point, m.Type == "cgroup2", m.Options})
		}
	}
	return mounts, err
}
