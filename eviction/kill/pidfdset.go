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

// maxHeld bounds the processes of a pod that are held at a time. Those beyond
// follow as the first ones end.
const maxHeld = 4096

var errOwnProcess = errors.New("our own process is among them")

// pidfdSet is the processes of a pod that are held.
type pidfdSet struct {
	target Target
	open   func(pid int) (process, error)
	ready  map[int]process // the pod's, to be signalled
	held   map[int]process // signalled in this stage and not seen to end
	tasks  stats.Amount    // of the pod when ready was made
}

func newPidfdSet(target Target, open func(pid int) (process, error)) *pidfdSet {
	return &pidfdSet{target: target, open: open, ready: map[int]process{}, held: map[int]process{}}
}

// openMembers opens processes of the pod that are not held yet, as many as there is room
// for. An id may have gone to a stranger between listing and opening; but a pidfd
// stays with one process for good, so where the id is listed again now, either
// the pidfd is that of a member, or its process has ended and takes no signal.
func (g *pidfdSet) openMembers(room int) (map[int]process, error) {
	pids, err := g.list()
	if err != nil {
		return nil, err
	}
	return g.openListed(pids, room)
}

// openListed is pin for processes that were listed just now.
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

// list never shows a pod that would take us along.
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

// refresh readies the processes that are in the pod now, up to a number.
func (g *pidfdSet) refresh(room int) {
	pids, err := g.list()
	for pid := range g.ready {
		if err != nil || !slices.Contains(pids, pid) {
			drop(g.ready, pid)
		}
	}
	pinned, _ := g.openListed(pids, room) // who kills will see the fault
	maps.Copy(g.ready, pinned)
}

// signalAgain makes those that were signalled in one stage the first of the next.
func (g *pidfdSet) signalAgain() {
	maps.Copy(g.ready, g.held)
	clear(g.held)
}

// signal signals processes, which are held from then on, and says with what
// results.
func (g *pidfdSet) signal(processes map[int]process, sig unix.Signal, note func(error)) {
	for pid, process := range processes {
		g.held[pid] = process
		note(process.signal(sig))
	}
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
