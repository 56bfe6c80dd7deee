package collect

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/stats"
)

// tasks reads the number of tasks and their limit as the kubelet does
// (pkg/kubelet/stats/pidlimit): the machine's limit is the lower of pid_max and
// threads-max, each if it can be read.
type tasks struct {
	pidMax, threadsMax, loadavg procFile
}

func newTasks(host string) tasks {
	return tasks{
		pidMax:     procFile{path: host + "/proc/sys/kernel/pid_max"},
		threadsMax: procFile{path: host + "/proc/sys/kernel/threads-max"},
		loadavg:    procFile{path: host + "/proc/loadavg"},
	}
}

func (t *tasks) close() {
	t.pidMax.file.Close()
	t.threadsMax.file.Close()
	t.loadavg.file.Close()
}

// read measures the machine, or the node's group where its limit is lower: limit and
// number are then both the group's.
func (t *tasks) read(root *cgroup.Group, s *stats.Tasks) error {
	var buf [128]byte
	pidMax, err1 := t.pidMax.read(buf[:])
	limit := decimal(pidMax)
	threadsMax, err2 := t.threadsMax.read(buf[:])
	limit = smaller(limit, decimal(threadsMax))
	loadavg, err3 := t.loadavg.read(buf[:])
	*s = stats.Tasks{Max: limit, Running: parseLoadavg(loadavg)}
	if root != nil {
		own, err := root.MaxPIDs()
		if err != nil {
			*s = stats.Tasks{}
			return err
		}
		if n, limited := own.Get(); limited && n < limit.Or(n+1) {
			*s = stats.Tasks{Max: own}
			s.Running, err = root.Threads()
			return err
		}
	}
	switch {
	case !limit.IsKnown():
		return errors.Join(err1, err2)
	case err3 == nil && !s.Running.IsKnown():
		return errors.New("read /proc/loadavg: no count of tasks in it")
	}
	return err3
}

func smaller(a, b stats.Amount) stats.Amount {
	if !a.IsKnown() || b.IsKnown() && b.Or(0) < a.Or(0) {
		return b
	}
	return a
}

// parseLoadavg returns the tasks that exist, the denominator in the fourth of the
// five fields of /proc/loadavg: "0.25 0.08 0.02 4/105 5212" (proc(5)).
func parseLoadavg(b []byte) stats.Amount {
	const space = " \t\n"
	var fourth []byte
	for field := range 5 {
		b = bytes.TrimLeft(b, space)
		end := bytes.IndexAny(b, space)
		if end < 0 {
			end = len(b)
		}
		if end == 0 {
			return stats.Amount{}
		}
		if field == 3 {
			fourth = b[:end]
		}
		b = b[end:]
	}
	_, existing, _ := bytes.Cut(fourth, []byte("/"))
	return decimal(existing)
}

// decimal is a number of tasks, which the kernel holds in 32 bits.
func decimal(b []byte) stats.Amount {
	b = bytes.TrimSpace(b)
	if len(b) == 0 || len(b) > 10 {
		return stats.Amount{}
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return stats.Amount{}
		}
		n = n*10 + int64(c-'0')
	}
	return stats.Known(n)
}

// parsePID reads the name of a process's directory in /proc.
func parsePID(name string) (int, bool) {
	pid, err := strconv.Atoi(name)
	return pid, err == nil && pid > 0
}
