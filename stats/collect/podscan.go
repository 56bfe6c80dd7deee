package collect

import (
	"slices"
	"sync/atomic"
	"time"
)

// maxBlocked bounds the scans that the kernel has not returned from, each of which holds a thread.
const maxBlocked = 16

// podScan is the scan of one pod, on a goroutine of its own: on a network or FUSE filesystem whose
// server is down, a system call returns when the server does. Its goroutine owns it but for place
// and steps.
type podScan struct {
	diskScan
	place    atomic.Pointer[PodPath] // what is being measured
	steps    atomic.Int64            // rises as long as the kernel answers
	show     func()                  // shows what has been counted so far
	complete bool
	ended    chan struct{}
}

// at says what is measured next.
func (r *podScan) at(place PodPath) {
	r.place.Store(&place)
	r.steps.Add(1)
}

// scanPod scans a pod and waits while the kernel answers. A pod of which it does not answer for
// the scanner's patience is unknown, and is not scanned again before it has answered. It returns
// false when ctx has ended.
func (s *DiskScanner) scanPod(r *diskScan, pod *PodDisk) bool {
	if s.blocked[pod] != nil {
		return true
	}
	if len(s.blocked) >= maxBlocked {
		pod.found.Store(&podUsage{partial: true})
		return true
	}
	begun, p := time.Now(), &podScan{diskScan: *r, ended: make(chan struct{})}
	go func() { // Run waits for it, unless it is blocked
		defer close(p.ended)
		p.complete = pod.scan(p)
	}()
	tick := time.NewTicker(s.patience)
	defer tick.Stop()
	for seen := int64(-1); ; {
		select {
		case <-p.ended:
			*r, pod.took = p.diskScan, time.Since(begun)
			return p.complete
		case <-r.ctx.Done():
			s.abandon(p)
			return false
		case <-tick.C:
		}
		if steps := p.steps.Load(); steps != seen {
			seen = steps
			continue
		}
		s.blocked[pod] = p
		pod.found.Store(&podUsage{partial: true})
		s.log.Warn("a filesystem with files of a pod does not answer; what the pod uses on disks is unknown until it does", "path", p.path())
		if len(s.blocked) == maxBlocked {
			s.log.Error("no further pod is scanned until a filesystem answers: what pods use on disks is unknown", "blocked", maxBlocked)
		}
		return true
	}
}

// path is what is being measured.
func (r *podScan) path() string {
	if place := r.place.Load(); place != nil {
		return place.String()
	}
	return ""
}

// abandon waits for a scan that ends with ctx, at most stopTimeout.
func (s *DiskScanner) abandon(p *podScan) {
	select {
	case <-p.ended:
	case <-time.After(stopTimeout):
		s.log.Warn("a filesystem does not answer; its scan is abandoned", "path", p.path())
	}
}

// dropReturned drops the scans that have ended since they were blocked.
func (s *DiskScanner) dropReturned() {
	for pod, p := range s.blocked {
		select {
		case <-p.ended:
			delete(s.blocked, pod)
			s.log.Info("a filesystem with files of a pod answers again", "path", p.path())
		default:
		}
	}
}

// answering are the pods that no blocked scan owns.
func (s *DiskScanner) answering(pods []*PodDisk) []*PodDisk {
	if len(s.blocked) == 0 {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *PodDisk) bool { return s.blocked[pod] != nil })
}
