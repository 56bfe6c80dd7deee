package kill

import (
	"errors"
	"log/slog"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evictd/evictd/internal/require"
)

// single is a Target of one process.
type single int

func (s *single) AppendProcesses(pids []int) ([]int, error) { return append(pids, int(*s)), nil }
func (s *single) Kill() error                               { return errors.ErrUnsupported }
func (s *single) Populated() (bool, error)                  { return true, nil }

// counted counts what was allocated up to the last signal.
type counted struct {
	process
	mallocs uint64
}

func (c *counted) signal(sig unix.Signal) error {
	err := c.process.signal(sig)
	c.mallocs = mallocs()
	return err
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func TestNothingIsAllocatedBeforeTheFirstSignal(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 20
	allocated := 0 // rounds; the runtime may allocate for itself in some
	for range rounds {
		child := exec.Command("sleep", "infinity")
		require.NoError(t, child.Start())
		k := New(Config{}, slog.New(slog.DiscardHandler))
		victim := &counted{}
		k.open = func(pid int) (_ process, err error) {
			victim.process, err = openPidfd(pid)
			return victim, err
		}
		pod := single(child.Process.Pid)
		v := Victim{UID: "a", Target: &pod}
		k.Prepare([]Victim{v})
		before := mallocs()
		require.NoError(t, k.Kill(v))
		_ = child.Wait() // which says that it was killed
		k.inFlight[v.UID].closeAll()
		if victim.mallocs > before {
			allocated++
		}
	}
	if allocated > rounds/2 {
		t.Errorf("%d of %d kills have allocated before the first signal", allocated, rounds)
	}
}
