package control

import (
	"context"

	"github.com/evictd/evictd/eviction"
)

// reportQueue bounds the reports that wait for their reader.
const reportQueue = 64

// endedQueue bounds the ends of kills that wait for the loop; the killer keeps
// more of them.
const endedQueue = 8

// podSet is the pods of one SetPods, of which it is the number.
type podSet struct {
	pods   []Pod
	number uint64
}

// SetPods replaces the pods of the node. It never blocks; a set that the loop has
// not received yet is dropped. Only one goroutine may call it.
func (l *Loop) SetPods(pods []Pod) {
	replace(l.incoming, podSet{pods, l.snapshots.sets.Add(1)})
	l.ports.Waiter.Wake()
}

// Configure replaces the configuration: thresholds that are the same keep their
// standing, and the housekeeping interval does not change. It never blocks; only one
// goroutine may call it.
func (l *Loop) Configure(cfg Config) {
	replace(l.configs, cfg)
	l.ports.Waiter.Wake()
}

// SetRestarted says which evicted pods have processes again. It never blocks; only one
// goroutine may call it.
func (l *Loop) SetRestarted(pods []eviction.Restarted) {
	replace(l.restarts, pods)
	l.ports.Waiter.Wake()
}

// replace sends a value and drops one that was not received yet.
func replace[T any](queue chan T, value T) {
	select {
	case <-queue:
	default:
	}
	queue <- value
}

// Reports delivers every housekeeping pass, every pass that decided or changed
// something, and the end of every kill. Run closes it. Reports that are not received
// in time are lost, and counted.
func (l *Loop) Reports() <-chan Report { return l.reports }

func (l *Loop) report(r Report) {
	r.Lost = l.lost.Load()
	select {
	case l.reports <- r:
	default:
		l.lost.Add(1)
	}
}

// forward wakes the loop for what its ports report.
func (l *Loop) forward(ctx context.Context) {
	var scanned <-chan struct{}
	if l.ports.DiskScanner != nil {
		scanned = l.ports.DiskScanner.Done()
	}
	var reclaimed <-chan eviction.Signal
	if l.ports.Reclaimer != nil {
		reclaimed = l.ports.Reclaimer.Reclaimed()
	}
	var steps <-chan eviction.StepOutcome
	if l.ports.Steps != nil {
		steps = l.ports.Steps.Outcomes()
	}
	for {
		select {
		case <-ctx.Done():
			l.ports.Waiter.Wake()
			return
		case outcome := <-steps:
			forward(ctx, l.stepOutcomes, outcome)
		case <-scanned:
			select {
			case l.scanned <- struct{}{}:
			default:
			}
		case signal := <-reclaimed:
			forward(ctx, l.reclaims, signal)
		case result, open := <-l.ports.Killer.Results():
			if !open {
				close(l.ended)
				l.ports.Waiter.Wake()
				return
			}
			forward(ctx, l.ended, result)
		}
		l.ports.Waiter.Wake()
	}
}

// forward sends a value unless ctx ends first.
func forward[T any](ctx context.Context, queue chan<- T, value T) {
	select {
	case queue <- value:
	case <-ctx.Done():
	}
}

// receive handles everything that waits for the loop, and then the readers. It says whether that
// caused a pass, and false where the killer has ended.
func (l *Loop) receive() (passed, open bool) {
	for {
		select {
		case cfg := <-l.configs:
			l.configure(cfg)
			l.pass(eviction.Housekeeping, Reconfigured)
		case set := <-l.incoming:
			l.received = set.number
			l.replacePods(set.pods)
			l.pass(eviction.Event, PodsChanged)
		case l.restarted = <-l.restarts:
			l.pass(eviction.Event, PodRestarted)
		case <-l.scanned:
			if !l.awaitsScan {
				continue
			}
			l.pass(eviction.Housekeeping, DiskScanned)
		case signal := <-l.reclaims:
			l.reclaimed = append(l.reclaimed, eviction.ReclaimOutcome{For: signal, Ended: true})
			l.pass(eviction.Housekeeping, Reclaimed)
		case outcome := <-l.stepOutcomes:
			l.stepped = append(l.stepped, outcome)
			l.pass(eviction.Event, StepTaken)
		case result, open := <-l.ended:
			if !open {
				return passed, false
			}
			l.killEnded(result)
		default:
			l.answer() // last: the answer includes all of the above
			return passed, true
		}
		passed = true
	}
}
