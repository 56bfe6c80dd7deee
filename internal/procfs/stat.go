// Package procfs parses files of /proc that more than one package reads. It never
// opens one.
package procfs

import (
	"bytes"
	"strconv"
)

// Stat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	Parent, Session, Threads int
	// Started is when the process started, clock ticks since boot: it distinguishes
	// processes with the same id.
	Started uint64
	// Dead says that it is a zombie: it uses no memory, but may have children.
	Dead bool
}

// Fields after the name, counted from the third one of the file.
const (
	state = iota
	parent
	_
	session
	threads   = 20 - 3
	started   = 22 - 3
	numFields = started + 1
)

// ParseStat reads "PID (NAME) STATE PARENT GROUP SESSION ...". The name may hold
// anything, parentheses too.
func ParseStat(text []byte) (s Stat, ok bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < numFields {
		return Stat{}, false
	}
	number := func(field int) int {
		n, err := strconv.ParseInt(string(fields[field]), 10, 32)
		ok = ok && err == nil && n >= 0
		return int(n)
	}
	ok = true
	s = Stat{Parent: number(parent), Session: number(session), Threads: number(threads)}
	s.Dead = fields[state][0] == 'Z' || fields[state][0] == 'X'
	var err error
	if s.Started, err = strconv.ParseUint(string(fields[started]), 10, 64); err != nil || !ok {
		return Stat{}, false
	}
	return s, true
}
