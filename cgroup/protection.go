package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Extended attributes of a cgroup that systemd sets by ManagedOOMPreference= of the unit
// (systemd.resource-control(5), since 248).
const oomdOmit, oomdAvoid = "user.oomd_omit", "user.oomd_avoid"

// Protection is what protects a cgroup that is no pod's.
type Protection struct {
	// ID distinguishes the cgroup from an earlier one of the same path.
	ID uint64
	// Low is memory.low, bytes; zero on v1, which has none.
	Low int64
	// Omit and Avoid are ManagedOOMPreference. Like systemd-oomd, evictd goes by it where root owns the cgroup, and by
	// omit where both are set.
	Omit, Avoid bool
}

// Protection reads what protects a group. A group that does not exist is ErrGone.
func (s *System) Protection(group string) (p Protection, err error) {
	dir := s.dir(memory, group)
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return p, ErrGone
	}
	if err != nil {
		return p, fmt.Errorf("read the protection of cgroup %s: %w", group, err)
	}
	is := info.Sys().(*syscall.Stat_t)
	p.ID = is.Ino
	if text, err := os.ReadFile(path.Join(dir, "memory.low")); err == nil && s.version == V2 {
		if low, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
			p.Low = low
		} else { // max
			p.Low = math.MaxInt64
		}
	}
	if is.Uid == 0 {
		p.Omit = isSet(dir, oomdOmit)
		p.Avoid = !p.Omit && isSet(dir, oomdAvoid)
	}
	return p, nil
}

// Find returns the groups below another one whose paths from there match a pattern of path.Match, sorted.
func (s *System) Find(below, pattern string) (groups []string) {
	dir := s.dir(memory, below)
	found, _ := filepath.Glob(path.Join(dir, pattern)) // only a bad pattern is an error
	for _, at := range found {
		if info, err := os.Stat(at); err == nil && info.IsDir() {
			groups = append(groups, strings.TrimPrefix(strings.TrimPrefix(at, dir), "/"))
		}
	}
	return groups
}

// isSet says whether an extended attribute of a directory is a true value of systemd.
func isSet(dir, name string) bool {
	var value [8]byte
	n, err := unix.Getxattr(dir, name, value[:])
	if err != nil {
		return false
	}
	switch string(bytes.ToLower(value[:n])) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}
