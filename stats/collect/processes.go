package collect

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/evictd/evictd/internal/procfs"
	"github.com/evictd/evictd/stats"
)

// Processes measures pods as sets of processes, where cgroups cannot be used: a pod is
// the session of a leader and all descendants. Values are as of the last Scan.
//
// Shared memory counts for each process that maps it. A process that leaves both its
// session and its parents is not counted.
type Processes struct {
	proc  string
	table map[int]procfs.Stat
}

// NewProcesses reads the processes below host + /proc; "" is the host itself.
func NewProcesses(host string) *Processes {
	return &Processes{proc: host + "/proc", table: map[int]procfs.Stat{}}
}

// Scan lists all processes. Processes that end meanwhile are left out.
func (p *Processes) Scan() error {
	dir, err := os.Open(p.proc)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	clear(p.table)
	for _, name := range names {
		pid, ok := parsePID(name)
		if !ok {
			continue
		}
		stat, err := os.ReadFile(p.proc + "/" + name + "/stat")
		if err != nil {
			continue
		}
		if read, ok := procfs.ParseStat(stat); ok {
			p.table[pid] = read
		}
	}
	return nil
}

// Usage sums the memory of the processes of several pods, each process once.
func (p *Processes) Usage(leaders []int) stats.Amount {
	var bytes int64
	for pid, process := range p.table {
		if !process.Dead && slices.ContainsFunc(leaders, func(leader int) bool { return p.belongs(pid, leader) }) {
			bytes += p.resident(pid)
		}
	}
	return stats.Known(bytes)
}

// pod fills in the usage of one pod: anonymous and shared memory, no file pages.
func (p *Processes) pod(leader int, s *stats.Pod) {
	var bytes, processes, threads int64
	for pid, process := range p.table {
		if !process.Dead && p.belongs(pid, leader) {
			bytes += p.resident(pid)
			processes++
			threads += int64(process.Threads)
		}
	}
	s.Memory, s.Processes, s.Threads = stats.Known(bytes), stats.Known(processes), stats.Known(threads)
}

// belongs follows the parents. A table read while processes start and end may have a
// loop, so the number of steps is bounded.
func (p *Processes) belongs(pid, leader int) bool {
	for range len(p.table) {
		at, ok := p.table[pid]
		if !ok || leader <= 0 {
			return false
		}
		if pid == leader || at.Session == leader {
			return true
		}
		pid = at.Parent
	}
	return false
}

// resident reads RssAnon and RssShmem of /proc/PID/status, bytes; 0 for a process
// that has ended.
func (p *Processes) resident(pid int) int64 {
	status, err := os.ReadFile(p.proc + "/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	return parseResident(string(status))
}

func parseResident(status string) int64 {
	var anon, shmem int64
	for line := range strings.Lines(status) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "RssAnon":
			anon = kilobytes(value)
		case "RssShmem":
			shmem = kilobytes(value)
		}
	}
	return anon + shmem
}

func kilobytes(value string) int64 {
	digits, ok := strings.CutSuffix(strings.TrimSpace(value), " kB")
	n, err := strconv.ParseUint(digits, 10, 43)
	if !ok || err != nil {
		return 0
	}
	return int64(n) << 10
}

// VirtualMemory is the memory of a node without a cgroup: a configured capacity, used
// by the pods' processes.
type VirtualMemory struct {
	Capacity  int64 // bytes
	Processes *Processes
	Leaders   func() []int // the pods' session leaders now
}

// read scans the processes and fills limit and usage.
func (v *VirtualMemory) read(m *stats.Memory) error {
	if err := v.Processes.Scan(); err != nil {
		return err
	}
	*m = stats.Memory{Limit: stats.Known(v.Capacity), Usage: v.Processes.Usage(v.Leaders())}
	return nil
}
