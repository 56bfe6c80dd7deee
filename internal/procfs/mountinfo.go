package procfs

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

// Mount is a line of /proc/PID/mountinfo (proc_pid_mountinfo(5)).
type Mount struct {
	ID           string
	Major, Minor uint32 // of the device
	Root, Point  string // the mounted part of the filesystem, and where it is
	Type         string
	Options      []string // of the filesystem
}

// ReadMounts reads a mountinfo, in its order. Lines that it cannot parse are left out.
func ReadMounts(mountinfo io.Reader) (mounts []Mount, err error) {
	for lines := bufio.NewReader(mountinfo); ; {
		line, err := lines.ReadString('\n')
		if m, ok := parseMount(line); ok {
			mounts = append(mounts, m)
		}
		if errors.Is(err, io.EOF) {
			return mounts, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// parseMount reads "ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE OPTIONS".
func parseMount(line string) (m Mount, ok bool) {
	before, after, _ := strings.Cut(line, " - ")
	mount, filesystem := strings.Fields(before), strings.Fields(after)
	if len(mount) < 6 || len(filesystem) < 3 {
		return m, false
	}
	first, second, _ := strings.Cut(mount[2], ":")
	major, err1 := strconv.ParseUint(first, 10, 32)
	minor, err2 := strconv.ParseUint(second, 10, 32)
	m = Mount{mount[0], uint32(major), uint32(minor), unescape(mount[3]), unescape(mount[4]), filesystem[0], strings.Split(filesystem[2], ",")}
	for i, option := range m.Options {
		m.Options[i] = unescape(option)
	}
	return m, err1 == nil && err2 == nil
}

// unescape decodes \ooo, by which the kernel writes blanks, commas and backslashes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
