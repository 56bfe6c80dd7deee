// Package apply sets oom_score_adj of pods' processes as package oom computes it. It
// writes no other file, and does not write a score that is already set, or that a process has
// chosen for itself or for its children: database servers and browsers do.
package apply

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/oom"
)

// Containers lists the processes of one pod.
type Containers interface {
	// Processes appends the ids of the processes in the container. A container that
	// is not running has none.
	Processes(container string, into []int) ([]int, error)
}

// Inits are the first processes of a pod's containers, by name. Apply adds to them.
type Inits map[string]initProcess

// initProcess is the first process of a container, and the score that it had from the
// runtime.
type initProcess struct {
	pid, score int
	started    uint64 // clock ticks since boot
}

// Counts is the result of Apply, in processes.
type Counts struct {
	Rewritten int // had the score from the runtime
	Refused   int // still have it: the kernel refused the write
}

// Applier writes scores. Several goroutines may use it.
type Applier struct {
	proc *os.Root
	log  *slog.Logger

	mu         sync.Mutex
	toldRefuse bool
}

// New uses the processes of a procfs mount, such as /proc. The mount stays open until
// Close.
func New(proc string, log *slog.Logger) (*Applier, error) {
	root, err := os.OpenRoot(proc)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	return &Applier{proc: root, log: log}, nil
}

// Close closes the procfs mount.
func (a *Applier) Close() error { return a.proc.Close() }

// Apply sets the score of the processes of the containers that have the one of the
// container's first process when it was first seen. Processes started later have
// theirs set by the next call. A process that ends meanwhile is normal. A score that
// the kernel refuses (lowering needs CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5))
// is logged the first time, counted, and no error. A failure for one container does not
// affect the others.
func (a *Applier) Apply(scores []oom.ContainerScore, of Containers, inits Inits) (Counts, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var counts Counts
	var faults []error
	for _, c := range scores {
		if err := a.applyTo(c, of, inits, &counts); err != nil {
			faults = append(faults, fmt.Errorf("set oom_score_adj of container %s: %w", c.Name, err))
		}
	}
	return counts, errors.Join(faults...)
}

// maxOpen bounds the open processes of a container.
const maxOpen = 256

func (a *Applier) applyTo(c oom.ContainerScore, of Containers, inits Inits, counts *Counts) error {
	pids, err := of.Processes(c.Name, nil)
	if err != nil {
		return err
	}
	from, found := a.find(inits[c.Name], pids)
	if !found {
		return nil
	}
	inits[c.Name] = from
	if from.score == c.ScoreAdj {
		return nil
	}
	var faults []error
	for some := range slices.Chunk(pids, maxOpen) {
		faults = append(faults, a.applyToSome(some, c, from.score, of, counts))
	}
	return errors.Join(faults...)
}

// find is the first process of a container, the one known before if it still runs. It is
// not found where all have ended.
func (a *Applier) find(known initProcess, pids []int) (first initProcess, found bool) {
	for _, pid := range pids {
		if pid == known.pid && a.started(pid) == known.started {
			return known, true
		}
	}
	for _, pid := range pids {
		started := a.started(pid)
		if started == 0 || found && (first.started < started || first.started == started && first.pid < pid) {
			continue
		}
		if score, err := a.score(pid); err == nil {
			first, found = initProcess{pid, score, started}, true
		}
	}
	return first, found
}

// started is when a process has started; zero where it has ended.
func (a *Applier) started(pid int) uint64 {
	text, err := a.proc.ReadFile(strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	stat, _ := procfs.ParseStat(text)
	return stat.Started
}

func (a *Applier) score(pid int) (int, error) {
	text, err := a.proc.ReadFile(strconv.Itoa(pid) + "/" + scoreFile)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(text)))
}

func (a *Applier) applyToSome(pids []int, c oom.ContainerScore, from int, of Containers, counts *Counts) error {
	var faults []error
	unset := map[int]*os.Root{}
	for _, pid := range pids {
		process, err := a.openWith(pid, from)
		if err != nil {
			faults = append(faults, err)
		}
		if process != nil {
			defer process.Close()
			unset[pid] = process
		}
	}
	if len(unset) == 0 {
		return errors.Join(faults...)
	}
	// The id may be reused between listing and opening. An open /proc/<pid> always
	// refers to one process: if a second listing has the id, and the directory can
	// still be read, the process is in the container.
	members, err := of.Processes(c.Name, nil)
	if err != nil {
		return errors.Join(append(faults, err)...)
	}
	for _, pid := range members {
		if process := unset[pid]; process != nil {
			faults = append(faults, a.write(process, pid, c, counts))
		}
	}
	return errors.Join(faults...)
}

const scoreFile = "oom_score_adj"

// openWith opens the directory of a process that has a score. It is nil where it has
// another, or the process has ended.
func (a *Applier) openWith(pid, score int) (*os.Root, error) {
	process, err := a.proc.OpenRoot(strconv.Itoa(pid))
	if err != nil {
		return nil, unlessGone(err)
	}
	text, err := process.ReadFile(scoreFile)
	if err == nil {
		var have int
		if have, err = strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && have == score {
			return process, nil
		}
	}
	process.Close()
	return nil, unlessGone(err)
}

func (a *Applier) write(process *os.Root, pid int, c oom.ContainerScore, counts *Counts) error {
	file, err := process.OpenFile(scoreFile, os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(strconv.Itoa(c.ScoreAdj))
		file.Close()
	}
	switch {
	case err == nil:
		counts.Rewritten++
	case errors.Is(err, fs.ErrPermission):
		counts.Refused++
		if !a.toldRefuse {
			a.toldRefuse = true
			a.log.Warn("the kernel refuses to change oom_score_adj; such processes keep their score",
				"pid", pid, "container", c.Name, "oomScoreAdj", c.ScoreAdj, "error", err)
		}
	default:
		return unlessGone(err)
	}
	return nil
}

// unlessGone drops the errors by which procfs reports that a process has ended.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
