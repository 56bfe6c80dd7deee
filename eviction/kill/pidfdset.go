package kill

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/stats"
)

// maxHeld bounds the open pidfds of a pod. Further processes are opened as the first
// ones exit.
const maxHeld = 4096

// heldFirst bounds the pidfds that are opened before cgroup.kill.
const heldFirst = 64

var errOwnProcess = errors.New("the pod contains evictd's own process")

// pidfdSet is the open pidfds of a pod's processes.
type pidfdSet struct {
	target Target
	open   func(pid int) (process, error)
	ready  map[int]process // not signalled in this stage
	held   map[int]process // signalled in this stage, not known to have exited
	tasks  stats.Amount    // of the pod when ready was filled
}

func newPidfdSet(target Target, open func(pid int) (process, error)) *pidfdSet {
	return &pidfdSet{target: target, open: open, ready: map[int]process{}, held: map[int]process{}}
}

// openMembers opens processes of the pod that are not open yet, up to room. Between
// listing and opening, the id may be reused by a process outside the pod. A pidfd
// always refers to one process: if a second listing has the id, the pidfd is of a
// member, or its process has exited and no signal has an effect.
func (g *pidfdSet) openMembers(room int) (map[int]process, error) {
	pids, err := g.list()
	if err != nil {
		return nil, err
	}
	return g.openListed(pids, room)
}

// openListed is openMembers for a list that was read just now.
func (g *pidfdSet) openListed(pids []int, room int) (map[int]process, error) {
	g.dropExited()
	var fault error
	opened := map[int]process{}
	for _, pid := range pids {
		if g.held[pid] != nil || g.ready[pid] != nil {
			continue
		}
		if len(g.held)+len(g.ready)+len(opened) >= room {
			break
		}
		process, err := g.open(pid)
		switch {
		case err == nil:
			opened[pid] = process
		case !errors.Is(err, os.ErrProcessDone):
			fault = err
		}
	}
	if len(opened) == 0 {
		return nil, fault
	}
	members, err := g.list()
	pinned := make(map[int]process, len(opened))
	for _, pid := range members {
		if process := opened[pid]; process != nil {
			pinned[pid] = process
			delete(opened, pid)
		}
	}
	closeAll(opened)
	return pinned, errors.Join(fault, err)
}

// exited says whether every process that is open has exited.
func (g *pidfdSet) exited() bool {
	for _, kept := range [...]map[int]process{g.held, g.ready} {
		for _, process := range kept {
			if !process.exited() {
				return false
			}
		}
	}
	return true
}

// dropExited drops the processes that have exited.
func (g *pidfdSet) dropExited() {
	for _, kept := range []map[int]process{g.held, g.ready} {
		for pid, process := range kept {
			if process.exited() {
				drop(kept, pid)
			}
		}
	}
}

// list returns the ids of the pod's processes. It fails if evictd's own process is
// among them.
func (g *pidfdSet) list() ([]int, error) {
	pids, err := g.target.AppendProcesses(nil)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case slices.Contains(pids, os.Getpid()):
		return nil, errOwnProcess
	}
	return pids, nil
}

// refresh opens the pod's processes, up to room, and closes those that left the pod.
func (g *pidfdSet) refresh(room int) {
	pids, err := g.list()
	for pid := range g.ready {
		if err != nil || !slices.Contains(pids, pid) {
			drop(g.ready, pid)
		}
	}
	pinned, _ := g.openListed(pids, room) // Kill reports the fault
	maps.Copy(g.ready, pinned)
}

// signalAgain moves the processes signalled in one stage to those to be signalled in
// the next.
func (g *pidfdSet) signalAgain() {
	maps.Copy(g.ready, g.held)
	clear(g.held)
}

// signal sends a signal to processes, calls note with each result, and moves them to held.
func (g *pidfdSet) signal(processes map[int]process, sig unix.Signal, note func(error)) {
	for _, process := range processes {
		note(process.signal(sig))
	}
	maps.Copy(g.held, processes)
}

func (g *pidfdSet) closeAll() {
	closeAll(g.held)
	closeAll(g.ready)
}

func closeAll(processes map[int]process) {
	for pid := range processes {
		drop(processes, pid)
	}
}

func drop(processes map[int]process, pid int) {
	processes[pid].close()
	delete(processes, pid)
}
