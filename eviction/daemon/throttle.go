package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/osprocess"
)

// throttler sets memory.high of one pod at a time, in a goroutine of its own, and puts it back: when the loop asks for
// it, at the deadline whatever the loop does, and when it ends. memory.high of the cgroup of all pods is memoryHigh's.
type throttler struct {
	cgroups  *cgroup.System
	groupOf  func(types.UID) string
	log      *slog.Logger
	requests chan any // *eviction.Throttle, *eviction.ThrottleEnd
	results  chan eviction.ThrottleOutcome
	// changes is set before run: memory.high of a killed evictd is put back by its log.
	changes *undo.Log

	// Owned by run.
	pod    *eviction.Pod // nil while none is throttled
	change *undo.Change
}

// withoutThrottle says why no pod can be throttled; "" if one can. Before Linux 5.9 a process that reaches
// memory.high sleeps, though page cache could be freed.
func (d *Daemon) withoutThrottle() string {
	switch {
	case d.node.cgroups == nil || d.node.cgroups.Version() != cgroup.V2:
		return "only cgroup v2 has memory.high"
	case !osprocess.KernelIsAtLeast(5, 9):
		return "it needs Linux 5.9, and this is " + osprocess.KernelRelease()
	}
	return ""
}

// newThrottler is nil in a dry run, and where no pod can be throttled.
func (d *Daemon) newThrottler() *throttler {
	if d.dryRun || d.withoutThrottle() != "" {
		return nil
	}
	return &throttler{
		cgroups: d.node.cgroups, groupOf: d.tracker.groupOf, log: d.log,
		requests: make(chan any, 8), results: make(chan eviction.ThrottleOutcome),
	}
}

// Throttle implements control.Throttler.
func (t *throttler) Throttle(request *eviction.Throttle) { t.ask(request) }

// End implements control.Throttler. One that is lost is made up for by the deadline.
func (t *throttler) End(request *eviction.ThrottleEnd) { t.ask(request) }

func (t *throttler) ask(request any) {
	select {
	case t.requests <- request:
	default:
	}
}

// Throttled implements control.Throttler.
func (t *throttler) Throttled() <-chan eviction.ThrottleOutcome { return t.results }

// run carries out requests until ctx ends.
func (t *throttler) run(ctx context.Context) {
	defer func() { t.end() }()
	deadline := time.NewTimer(time.Hour)
	defer deadline.Stop()
	for {
		var outcome eviction.ThrottleOutcome
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			outcome = t.end()
		case request := <-t.requests:
			switch request := request.(type) {
			case *eviction.Throttle:
				t.end()
				outcome = t.begin(request)
				deadline.Reset(request.For)
			case *eviction.ThrottleEnd:
				if t.pod != nil && t.pod.UID == request.Pod.UID {
					outcome = t.end()
				}
			}
		}
		if outcome.UID == "" {
			continue
		}
		select {
		case t.results <- outcome:
		case <-ctx.Done():
			return
		}
	}
}

// begin sets memory.high of a pod above its usage, where no other program has set one in the pod.
func (t *throttler) begin(request *eviction.Throttle) eviction.ThrottleOutcome {
	outcome := eviction.ThrottleOutcome{UID: request.Pod.UID}
	high, change, err := t.set(t.groupOf(request.Pod.UID), request.Room)
	if err != nil {
		outcome.Refused = err.Error()
		return outcome
	}
	t.pod, t.change, outcome.High = request.Pod, change, high
	return outcome
}

func (t *throttler) set(group string, room int64) (high int64, change *undo.Change, err error) {
	switch {
	case group == "":
		return 0, nil, errors.New("the pod has no cgroup")
	case t.changes == nil:
		return 0, nil, errors.New("memory.high could not be put back if evictd were killed")
	}
	children, err := t.cgroups.Children(group)
	if err != nil {
		return 0, nil, err
	}
	for _, child := range append(children, "") {
		file, _ := t.cgroups.MemoryHighFile(path.Join(group, child))
		text, err := os.ReadFile(file)
		if is := strings.TrimSpace(string(text)); err == nil && is != "max" {
			return 0, nil, fmt.Errorf("memory.high of cgroup %s is %s: another program has set it", path.Join(group, child), is)
		}
	}
	state, err := t.cgroups.ReclaimState(group)
	if err != nil {
		return 0, nil, err
	}
	usage, known := state.Usage.Get()
	if !known {
		return 0, nil, errors.New("the memory of the pod is not known")
	}
	file, _ := t.cgroups.MemoryHighFile(group)
	high = (usage + max(room, pageSize)) / pageSize * pageSize // below its usage, the kernel would reclaim in the write
	change, err = t.changes.Set(file, strconv.FormatInt(high, 10))
	return high, change, err
}

// end puts memory.high back.
func (t *throttler) end() (outcome eviction.ThrottleOutcome) {
	if t.pod == nil {
		return outcome
	}
	if err := t.change.Undo(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("memory.high of a pod could not be restored; evictd undo tries again", "pod", t.pod.String(), "error", err)
	}
	outcome.UID, t.pod, t.change = t.pod.UID, nil, nil
	return outcome
}
