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
	requests chan *eviction.StepAction
	outcomes chan<- eviction.StepOutcome
	// changes has the log that puts memory.high of a killed evictd back; it is opened before run.
	changes func() *undo.Log

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

func (d *Daemon) newThrottler(outcomes chan<- eviction.StepOutcome) *throttler {
	return &throttler{
		cgroups: d.node.cgroups, groupOf: d.tracker.groupOf, log: d.log, changes: func() *undo.Log { return d.changes },
		requests: make(chan *eviction.StepAction, 8), outcomes: outcomes,
	}
}

// take implements stepTaker. An end that is lost is made up for by the deadline.
func (t *throttler) take(request *eviction.StepAction) {
	select {
	case t.requests <- request:
	default:
	}
}

// run carries out requests until ctx ends.
func (t *throttler) run(ctx context.Context) {
	defer func() { t.end() }()
	deadline := time.NewTimer(time.Hour)
	defer deadline.Stop()
	for {
		var outcome eviction.StepOutcome
		select {
		case <-ctx.Done():
			return
		case <-deadline.C:
			outcome = t.end()
		case request := <-t.requests:
			switch {
			case !request.Over:
				t.end()
				outcome = t.begin(request)
				deadline.Reset(request.For)
			case t.pod != nil && t.pod.UID == request.Pod.UID:
				outcome = t.end()
			}
		}
		if outcome.UID == "" {
			continue
		}
		select {
		case t.outcomes <- outcome:
		case <-ctx.Done():
			return
		}
	}
}

// begin sets memory.high of a pod above its usage, where no other program has set one in the pod.
func (t *throttler) begin(request *eviction.StepAction) eviction.StepOutcome {
	outcome := eviction.StepOutcome{Step: eviction.Throttle, UID: request.Pod.UID}
	high, change, err := t.set(t.groupOf(request.Pod.UID), request.Bytes)
	if err != nil {
		outcome.Refused = err.Error()
		return outcome
	}
	t.pod, t.change, outcome.Bytes = request.Pod, change, high
	return outcome
}

func (t *throttler) set(group string, room int64) (high int64, change *undo.Change, err error) {
	switch {
	case group == "":
		return 0, nil, errors.New("the pod has no cgroup")
	case t.changes() == nil:
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
	change, err = t.changes().Set(file, strconv.FormatInt(high, 10))
	return high, change, err
}

// end puts memory.high back.
func (t *throttler) end() (outcome eviction.StepOutcome) {
	if t.pod == nil {
		return outcome
	}
	if err := t.change.Undo(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.log.Warn("memory.high of a pod could not be restored; evictd undo tries again", "pod", t.pod.String(), "error", err)
	}
	outcome.Step, outcome.UID = eviction.Throttle, t.pod.UID
	t.pod, t.change = nil, nil
	return outcome
}
