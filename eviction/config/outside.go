package config

import (
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// outside checks the cgroups outside of the pods that may be evicted. Whether evictd or the pods are in such a cgroup is
// known on the node only.
func (c *compiler) outside(groups []string) {
	for i, group := range groups {
		at := c.at("outside").Index(i)
		first, _, _ := strings.Cut(group, "/")
		switch {
		case group == "" || path.IsAbs(group) || path.Clean(group) != group || first == "." || first == "..":
			c.invalid(at, group, "must be the path of a cgroup below cgroupRoot, such as system.slice/batch.service")
		case first == "init.scope":
			c.invalid(at, group, "must not be the cgroup of init")
		case first == "kubepods" || first == "kubepods.slice":
			c.invalid(at, group, "must not be a cgroup of pods")
		}
		for _, other := range groups[:i] {
			switch {
			case other == "" || group == "":
			case other == group:
				c.faults = append(c.faults, field.Duplicate(at, group))
			case Within(group, other) || Within(other, group):
				c.invalid(at, group, "must not be in, or have in it, "+other)
			}
		}
	}
	if len(groups) > 0 && !slices.ContainsFunc(c.settings, func(s setting) bool { return s.Signal.String() == "memory.available" && s.Hard() }) {
		c.warn(c.at("outside"), "has no effect: memory.available has no hard threshold")
	}
}

// Within says whether a cgroup is another one, or is in it, by their paths.
func Within(group, other string) bool { return strings.HasPrefix(group+"/", other+"/") }
