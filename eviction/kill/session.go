package kill

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/procfs"
)

// Session is the Target of a pod without a cgroup: the processes of one session, and
// all descendants of a process that was once listed in it, also after they left the
// session. It misses a descendant that left the session before its parent ended and
// between two listings. Several goroutines may use it.
type Session struct {
	proc   *os.Root
	leader int
	began  uint64 // when the leader started

	mu      sync.Mutex
	members map[int]uint64 // as last listed, and when each started
}

// NewSession opens the session of a leader in a procfs mount, such as /proc. The error
// is fs.ErrNotExist where the leader has ended. Close it after the end of the pod.
func NewSession(mount string, leader int) (*Session, error) {
	root, err := os.OpenRoot(mount)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	s := &Session{proc: root, leader: leader}
	st, err := s.stat(leader)
	if err == nil && st.Session != leader {
		err = fmt.Errorf("process leads no session, it is in that of %d", st.Session)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open session of process %d: %w", leader, err)
	}
	s.began = st.Started
	return s, nil
}

// Close closes the procfs mount.
func (s *Session) Close() error { return s.proc.Close() }

// AppendProcesses implements Target.
func (s *Session) AppendProcesses(pids []int) ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, err := s.readAll()
	if err != nil {
		return pids, fmt.Errorf("list session of process %d: %w", s.leader, err)
	}
	// The kernel does not reuse the leader's id while its session has members: if
	// another process has the id, the session has ended.
	leader, running := all[s.leader]
	ended := running && leader.Started != s.began
	members := map[int]uint64{}
	for pid, st := range all {
		since, known := s.members[pid] // processes of the boot started at 0, too
		if known && since == st.Started || st.Session == s.leader && !ended {
			members[pid] = st.Started
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, st := range all {
			_, known := members[pid]
			if _, child := members[st.Parent]; child && !known {
				members[pid] = st.Started
				grown = true
			}
		}
	}
	s.members = members
	for pid := range members {
		if !all[pid].Dead {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Kill implements Target: there is no such call for a session.
func (s *Session) Kill() error { return errors.ErrUnsupported }

// Populated implements Target.
func (s *Session) Populated() (bool, error) {
	pids, err := s.AppendProcesses(nil)
	return len(pids) > 0, err
}

func (s *Session) readAll() (map[int]procfs.Stat, error) {
	dir, err := s.proc.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make(map[int]procfs.Stat, len(names))
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

func (s *Session) stat(pid int) (procfs.Stat, error) {
	text, err := s.proc.ReadFile(strconv.Itoa(pid) + "/stat")
	if errors.Is(err, unix.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return procfs.Stat{}, err
	}
	st, ok := procfs.ParseStat(text)
	if !ok {
		return procfs.Stat{}, fmt.Errorf("unexpected /proc/%d/stat: %q", pid, text)
	}
	return st, nil
}
