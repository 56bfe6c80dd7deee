// Package apply sets oom_score_adj of pods' processes as package oom computes it. It
// writes no other file, and does not write a score that is already set.
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

	"github.com/evictd/evictd/oom"
)

// Containers lists the processes of one pod.
type Containers interface {
	// Processes appends the ids of the processes in the container. A container that
	// is not running has none.
	Processes(container string, into []int) ([]int, error)
}

// Counts is the result of Apply, in processes.
type Counts struct {
	Rewritten int // had another score
	Refused   int // still have another score: the kernel refused the write
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

// Apply sets the score of every process of the containers. Processes started later have
// theirs set by the next call. A process that ends meanwhile is normal. A score that
// the kernel refuses (lowering needs CAP_SYS_RESOURCE, see proc_pid_oom_score_adj(5))
// is logged the first time, counted, and no error. A failure for one container does not
// affect the others.
func (a *Applier) Apply(scores []oom.ContainerScore, of Containers) (Counts, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var counts Counts
	var faults []error
	for _, c := range scores {
		if err := a.applyTo(c, of, &counts); err != nil {
			faults = append(faults, fmt.Errorf("set oom_score_adj of container %s: %w", c.Name, err))
		}
	}
	return counts, errors.Join(faults...)
}

// maxOpen bounds the open processes of a container.
const maxOpen = 256

func (a *Applier) applyTo(c oom.ContainerScore, of Containers, counts *Counts) error {
	pids, err := of.Processes(c.Name, nil)
	if err != nil {
		return err
	}
	var faults []error
	for some := range slices.Chunk(pids, maxOpen) {
		faults = append(faults, a.applyToSome(some, c, of, counts))
	}
	return errors.Join(faults...)
}

func (a *Applier) applyToSome(pids []int, c oom.ContainerScore, of Containers, counts *Counts) error {
	var faults []error
	drifted := map[int]*os.Root{}
	for _, pid := range pids {
		process, err := a.openDrifted(pid, c.ScoreAdj)
		if err != nil {
			faults = append(faults, err)
		}
		if process != nil {
			defer process.Close()
			drifted[pid] = process
		}
	}
	if len(drifted) == 0 {
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
		if process := drifted[pid]; process != nil {
			faults = append(faults, a.write(process, pid, c, counts))
		}
	}
	return errors.Join(faults...)
}

const scoreFile = "oom_score_adj"

// openDrifted opens the directory of a process with another score than wanted. It is
// nil where the score is set, or the process has ended.
func (a *Applier) openDrifted(pid, want int) (*os.Root, error) {
	process, err := a.proc.OpenRoot(strconv.Itoa(pid))
	if err != nil {
		return nil, unlessGone(err)
	}
	text, err := process.ReadFile(scoreFile)
	if err == nil {
		var have int
		if have, err = strconv.Atoi(string(bytes.TrimSpace(text))); err == nil && have != want {
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
