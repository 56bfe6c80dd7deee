package nocgroups

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/evictd/evictd/cmd/evictd-playground/console"
)

// The node: what it has, and below which available memory a pod is evicted.
const (
	nodeMemory = 512 * console.MiB
	threshold  = 100 * console.MiB
)

// node is an amount of memory that the pods' processes are the only users of.
type node struct {
	processes []*os.File // statm of the pods' processes
}

// place counts the pod's process.
func (n *node) place(p *pod) error {
	statm, err := os.Open("/proc/" + strconv.Itoa(p.PID()) + "/statm")
	if err != nil {
		return fmt.Errorf("place pod %v: %w", p, err)
	}
	n.processes = append(n.processes, statm)
	return nil
}

// available takes what the processes have for themselves off the node: what is
// resident and not shared (proc_pid_statm(5), pages). Bytes.
func (n *node) available() int64 {
	left := int64(nodeMemory)
	var buf [128]byte
	for _, statm := range n.processes {
		length, _ := statm.ReadAt(buf[:], 0) // one that has ended reads as empty
		fields := strings.Fields(string(buf[:length]))
		if len(fields) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(fields[1], 10, 64)
		shared, _ := strconv.ParseInt(fields[2], 10, 64)
		left -= (resident - shared) * int64(os.Getpagesize())
	}
	return left
}

func (n *node) close() {
	for _, statm := range n.processes {
		statm.Close()
	}
}
