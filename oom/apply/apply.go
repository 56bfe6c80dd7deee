// Package apply keeps oom_score_adj of pods' processes at what package oom says.
// It writes nothing else, and nothing at all where the score is right already.
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
	// Processes appends the ids of the processes that are in the container
	// now. A container that has not started or is gone has none.
	Processes(container string, into []int) ([]int, error)
}

// Counts is what applying scores came to, in processes.
type Counts struct {
	Rewritten int // held another score
	Refused   int // hold another score still: the kernel did not let us change it
}

// Applier writes scores. It may be used by several goroutines.
type Applier struct {
	proc *os.Root
	log  *slog.Logger

	mu         sync.Mutex
	toldRefuse bool
}

// New writes to the processes of a procfs mount, /proc for one. The mount stays
// open until Close.
func New(proc string, log *slog.Logger) (*Applier, error) {
	root, err := os.OpenRoot(proc)
	if err != nil {
		return nil, fmt.Errorf("open procfs: %w", err)
	}
	return &Applier{proc: root, log: log}, nil
}

// Close lets go of the procfs mount.
func (a *Applier) Close() error { return a.proc.Close() }

// Apply brings every process of the containers to its score. Processes started
// later are caught by the next call. A process that vanishes meanwhile is normal;
// a score that the kernel refuses (lowering needs CAP_SYS_RESOURCE, see
// proc_pid_oom_score_adj(5)) is logged the first time, counted, and no error.
// One container's failure does not keep the others from their scores.
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

// held bounds the processes of a container that are held open at a time.
const held = 256

func (a *Applier) applyTo(c oom.ContainerScore, of Containers, counts *Counts) error {
	pids, err := of.Processes(c.Name, nil)
	if err != nil {
		return err
	}
	var faults []error
	for some := range slices.Chunk(pids, held) {
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
	// The id may have gone to a stranger between listing and opening. An open
	// /proc/<pid> stays with one process for good, so an id that is listed
	// again now, and whose directory still answers, is that of a member.
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

// openDrifted opens the process's directory where its score is not the wanted
// one, and is nil where it is, or where the process is gone.
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
			a.log.Warn("the kernel refuses to change oom_score_adj; scores stay as they are where it does",
				"pid", pid, "container", c.Name, "oomScoreAdj", c.ScoreAdj, "error", err)
		}
	default:
		return unlessGone(err)
	}
	return nil
}

// unlessGone hides the ways in which procfs says that a process has ended.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
