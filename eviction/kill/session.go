package kill

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Session is the Target of a pod without a cgroup: the processes of one session
// and all descendants of a process once seen to belong, even if they left the
// session since. A descendant that left the session before its parent ended, and
// was never listed between, escapes. Several goroutines may use it.
type Session struct {
	proc   *os.Root
	leader int
	began  startTime

	mu      sync.Mutex
	members map[int]startTime // as last listed
}

// startTime tells a process from the next one with its id: clock ticks since the
// machine came up.
type startTime uint64

// NewSession opens the session of a leader in a procfs mount, /proc for one. It
// is fs.ErrNotExist where the leader has ended. Close it after the pod's end.
func NewSession(proc string, leader int) (*Session, error) {
	root, err := os.OpenRoot(proc)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	s := &Session{proc: root, leader: leader}
	st, err := s.stat(leader)
	if err == nil && st.session != leader {
		err = fmt.Errorf("process leads no session, it is in that of %d", st.session)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open session of process %d: %w", leader, err)
	}
	s.began = st.started
	return s, nil
}

// Close lets go of the procfs mount.
func (s *Session) Close() error { return s.proc.Close() }

// AppendProcesses implements Target.
func (s *Session) AppendProcesses(pids []int) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.readAll()
	if err != nil {
		return pids, fmt.Errorf("list session of process %d: %w", s.leader, err)
	}
	// The kernel gives the leader's id to nobody while its session has members:
	// where another process has it, so has the session ended.
	leader, running := all[s.leader]
	ended := running && leader.started != s.began
	members := map[int]startTime{}
	for pid, st := range all {
		since, known := s.members[pid] // processes of the boot started at 0, too
		if known && since == st.started || st.session == s.leader && !ended {
			members[pid] = st.started
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, st := range all {
			_, known := members[pid]
			if _, child := members[st.parent]; child && !known {
				members[pid] = st.started
				grown = true
			}
		}
	}
	s.members = members
	for pid := range members {
		if !all[pid].zombie {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Kill implements Target: the kernel knows no such thing for a session.
func (s *Session) Kill() error { return errors.ErrUnsupported }

// Populated implements Target.
func (s *Session) Populated() (bool, error) {
	pids, err := s.AppendProcesses(nil)
	return len(pids) > 0, err
}

// stat is what /proc/<pid>/stat tells of a process.
type stat struct {
	parent, session int
	started         startTime
	zombie          bool
}

func (s *Session) readAll() (map[int]stat, error) {
	dir, err := s.proc.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]stat, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		st, err := s.stat(pid)
		if err == nil {
			all[pid] = st
		} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return nil, err
		}
	}
	return all, nil
}

func (s *Session) stat(pid int) (stat, error) {
	text, err := s.proc.ReadFile(strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return stat{}, err
	}
	st, ok := parseStat(text)
	if !ok {
		return stat{}, fmt.Errorf("unexpected /proc/%d/stat: %q", pid, text)
	}
	return st, nil
}

// parseStat reads proc_pid_stat(5). The second field is a name in parentheses
// that may hold anything; those that count are the third, fourth, sixth and 22nd.
func parseStat(text []byte) (st stat, ok bool) {
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return stat{}, false
	}
	state := fields[0][0]
	parent, err1 := strconv.Atoi(string(fields[1]))
	session, err2 := strconv.Atoi(string(fields[3]))
	started, err3 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil {
		return stat{}, false
	}
	return stat{parent, session, startTime(started), state == 'Z' || state == 'X'}, true
}
