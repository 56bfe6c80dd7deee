package daemon

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/evictd/evictd/internal/osprocess"
)

const (
	// niceness of all threads (setpriority(2)): they run before those of pods.
	niceness = -15
	// starting is how long the start takes, with the first measurement of all pods.
	starting = 20 * time.Second
	// relock is the interval at which unused memory is given back.
	relock = 10 * time.Minute
	// processors is the least GOMAXPROCS. The thread of the loop needs a free P of Go's scheduler
	// when it returns from the kernel, and a thread of normal priority keeps its P while it waits
	// for the processor behind others: with as many as there are processors, none may be free.
	processors = 8
)

// urgent are the packages that run between the crossing of a threshold and the end of a
// pod: their code is in memory before its first use.
var urgent = []string{
	"github.com/evictd/evictd/cgroup", "github.com/evictd/evictd/eviction", "github.com/evictd/evictd/eviction/control",
	"github.com/evictd/evictd/eviction/daemon", "github.com/evictd/evictd/eviction/kill", "github.com/evictd/evictd/stats", "github.com/evictd/evictd/stats/collect",
}

// prioritize locks the memory of this process and gives the calling thread, which runs the
// loop, a realtime priority. What the host refuses is logged.
func (d *Daemon) prioritize(ctx context.Context, around *sync.WaitGroup) {
	runtime.GOMAXPROCS(max(processors, runtime.GOMAXPROCS(0)))
	if err := osprocess.Lock(); err != nil {
		d.log.Info("evictd's memory may be swapped and its program be read from disk again", "error", err)
	}
	around.Go(func() { relocked(ctx) })
	runtime.LockOSThread()
	thread, err := osprocess.Elevate()
	if err != nil {
		d.log.Info("the thread of the loop has no realtime priority", "error", err)
		return
	}
	around.Go(func() { thread.Guard(ctx, niceness, d.log) })
}

// relocked gives unused memory back to the kernel and locks what is used: once after the start, and
// then at every interval of relock, until ctx ends.
func relocked(ctx context.Context) {
	again := time.NewTimer(starting)
	defer again.Stop()
	for keep := urgent; ; keep = nil {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			_ = osprocess.Lock(keep...)
			again.Reset(relock)
		}
	}
}
