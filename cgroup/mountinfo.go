package cgroup

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

// mount is one mounted cgroup hierarchy, from /proc/self/mountinfo (proc(5)).
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

// parseMountinfo returns the cgroup mounts, in the order of the table. Lines it
// cannot parse are left out.
func parseMountinfo(r io.Reader) ([]mount, error) {
	var mounts []mount
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
		if err == io.EOF {
			return mounts, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read mountinfo: %w", err)
		}
	}
}

// parseMount reads "ID PARENT MAJ:MIN ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER".
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 3 || right[0] != "cgroup" && right[0] != "cgroup2" {
		return mount{}, false
	}
	return mount{
		root:    unescape(left[3]),
		point:   unescape(left[4]),
		v2:      right[0] == "cgroup2",
		options: strings.Split(right[2], ","),
	}, true
}

// unescape undoes the octal escapes (\040) that the kernel writes for blanks and
// backslashes in paths.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && octal(s[i+1:i+4]) {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func octal(s string) bool {
	return s[0] >= '0' && s[0] <= '3' && s[1] >= '0' && s[1] <= '7' && s[2] >= '0' && s[2] <= '7'
}
