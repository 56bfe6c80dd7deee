package recorder

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/journal"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

const (
	mebi = int64(1) << 20
	gibi = int64(1) << 30
)

// incident is a node on which pods use more and more of memory, a disk and process
// ids, and everything around the loop, at random and in simulated time. It implements
// the ports of a loop.
type incident struct {
	dice      sync.Mutex
	random    *rand.Rand
	begun     time.Time
	steps     []string  // before evictions, as reported
	first     time.Time // report
	uids      int
	loop      *control.Loop
	woken     chan struct{}
	results   chan kill.Result
	scanned   chan struct{}
	reclaimed chan eviction.Signal
	kills     sync.WaitGroup

	mu       sync.Mutex
	pods     []*growingPod
	freed    int64 // of the disk by the node
	since    time.Time
	segments []journal.Segment
	left     int64
}

// growingPod is a pod of an incident: its meter and what there is to kill.
type growingPod struct {
	*incident
	manifest                  *v1.Pod
	memory, disk, tasks       int64 // at first
	memoryRate, diskRate      int64 // a second
	taskRate                  int64
	sigkill                   time.Time // zero while it is not being killed
	ended, freesDisk, reapsAt time.Time // zero while it runs
	unlisted, arrived         bool
}

// stallPeriod: in its first half tasks wait for memory six tenths of the time.
const stallPeriod = time.Minute

// stall is how long tasks have waited for memory, and what was read back: 4 KiB for each millisecond of it.
func (i *incident) stall() (waited stats.Stall, readBack int64) {
	ran := time.Since(i.begun) + time.Second
	stalled := ran/stallPeriod*stallPeriod/2 + min(ran%stallPeriod, stallPeriod/2)
	return stats.Stall{Some: stalled * 8 / 10, Full: stalled * 6 / 10, Known: true}, int64(stalled/time.Millisecond) << 12
}

// swappedPart of the memory of a pod is in swap besides.
const swappedPart = 8

// Int64N and IntN are for any goroutine.
func (i *incident) Int64N(n int64) int64 {
	i.dice.Lock()
	defer i.dice.Unlock()
	return i.random.Int64N(n)
}

func (i *incident) IntN(n int) int { return int(i.Int64N(int64(n))) }

func (i *incident) chance(one int) bool { return i.IntN(one) == 0 }

func (i *incident) between(from, to time.Duration) time.Duration {
	return from + time.Duration(i.Int64N(int64(to-from)))
}

func (p *growingPod) grown(from, rate int64) int64 {
	at := time.Now()
	if !p.ended.IsZero() {
		at = p.ended
	}
	return from + int64(at.Sub(p.begun).Seconds()*float64(rate))
}

// uses is what the pod takes of the node now.
func (p *growingPod) uses() (memory, disk, tasks int64) {
	now := time.Now()
	memory, disk, tasks = p.grown(p.memory, p.memoryRate), p.grown(p.disk, p.diskRate), p.grown(p.tasks, p.taskRate)
	if p.ended.IsZero() {
		return memory, disk, tasks
	}
	if now.After(p.freesDisk) {
		disk = 0
	}
	if now.After(p.reapsAt) {
		tasks = 0
	}
	return 0, disk, tasks
}

// Read implements control.Sensor.
func (i *incident) Read(n *stats.Node, _ collect.Ask) {
	time.Sleep(time.Microsecond)
	i.mu.Lock()
	defer i.mu.Unlock()
	var memory, disk, tasks int64
	for _, p := range i.pods {
		m, d, t := p.uses()
		memory, disk, tasks = memory+m, disk+d, tasks+t
	}
	now := time.Now()
	stall, readBack := i.stall()
	*n = stats.Node{
		Time:        now,
		Memory:      stats.Memory{Limit: stats.Known(16 * gibi), Usage: stats.Known(memory), ReadBack: stats.Known(readBack), Stolen: stats.Known(readBack)},
		NodeFs:      stats.Filesystem{Capacity: stats.Known(100 * gibi), Available: stats.Known(max(0, 100*gibi-disk+i.freed)), Time: now.Truncate(700 * time.Millisecond)},
		Tasks:       stats.Tasks{Max: stats.Known(4096), Running: stats.Known(tasks)},
		MemoryStall: stall,
		Swap:        stats.Swap{Total: stats.Known(2 * gibi), Free: stats.Known(max(0, 2*gibi-memory/swappedPart))},
	}
}

// meter is control.Meter of a pod.
type meter struct{ *growingPod }

func (m meter) Read(s *stats.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	memory, disk, tasks := m.uses()
	_, readBack := m.stall()
	*s = stats.Pod{Time: time.Now(), ReadBack: stats.Known(readBack * (memory >> 28)), Memory: stats.Known(memory), Swap: stats.Known(memory / swappedPart), Threads: stats.Known(tasks), Processes: stats.Known((tasks + 1) / 2),
		Containers: append(s.Containers[:0], stats.Container{Memory: stats.Known(memory), Rootfs: stats.Known(disk / 2)}),
		Volumes:    append(s.Volumes[:0], stats.Volume{Used: stats.Known(disk - disk/2)})}
	if !m.ended.IsZero() {
		s.Processes = stats.Known(0)
	}
	if m.unlisted && !m.ended.IsZero() {
		return fs.ErrNotExist
	}
	return nil
}

func (m meter) ReadStall() (stats.Stall, error) {
	stall, _ := m.stall()
	stall.Known = m.tasks%2 == 0
	return stall, nil
}

func (m meter) ReadMemory(s *stats.Pod, _ bool) error {
	err := m.Read(s)
	s.Processes = stats.Amount{}
	return err
}

// AppendProcesses, Kill and Populated make the pod a kill.Target.
func (p *growingPod) AppendProcesses(pids []int) ([]int, error) { return pids, nil }
func (p *growingPod) Kill() error                               { return nil }
func (p *growingPod) Populated() (bool, error)                  { return true, nil }

// Wait, Wake and Aim implement control.Waiter. The loop is late by some milliseconds.
func (i *incident) Wait(d time.Duration) string {
	select {
	case <-i.woken:
	case <-time.After(max(d, 60*time.Millisecond)):
	}
	return ""
}

func (i *incident) Wake() {
	select {
	case i.woken <- struct{}{}:
	default:
	}
}

func (i *incident) SetLevels(collect.MemoryLevels) collect.Armed { return collect.Unarmed }

// killer implements control.Killer.
type killer struct{ *incident }

func (k killer) Results() <-chan kill.Result { return k.results }

func (k killer) Ended(kill.Target) bool { return false }

func (k killer) Killed(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.manifest.UID == uid {
			return !p.sigkill.IsZero() && !time.Now().Before(p.sigkill)
		}
	}
	return false
}

func (k killer) Hasten(uid types.UID, grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if at := time.Now().Add(grace); p.manifest.UID == uid && at.Before(p.sigkill) {
			p.sigkill = at
		}
	}
}

// Kill has the pod end in order, at SIGKILL, late or not at all.
func (k killer) Kill(v kill.Victim) error {
	if k.chance(20) {
		return kill.ErrFull
	}
	p, begun := v.Target.(*growingPod), time.Now()
	k.mu.Lock()
	p.sigkill = begun.Add(v.Grace)
	end, way := begun.Add(k.between(time.Millisecond, 2*time.Second)), k.IntN(8)
	k.mu.Unlock()
	k.kills.Go(func() {
		for { // until it ends, or is killed
			k.mu.Lock()
			until := p.sigkill.Add(3 * time.Millisecond)
			if way < 4 && end.Before(until) {
				until = end
			}
			k.mu.Unlock()
			if wait := time.Until(until); wait > 0 {
				time.Sleep(min(wait, 100*time.Millisecond))
				continue
			}
			break
		}
		result := kill.Result{UID: v.UID, Signalled: begun}
		switch way {
		case 5:
			k.results <- kill.Result{UID: v.UID, Err: kill.ErrNotSignalled}
			return
		case 6: // it is stuck
			time.Sleep(kill.Overdue)
			result.Err = kill.ErrPopulated
			k.results <- result
			time.Sleep(k.between(0, 20*time.Second))
		case 7:
			result.Signalled = time.Time{}
		}
		k.mu.Lock()
		p.ended = time.Now()
		p.freesDisk, p.reapsAt = p.ended.Add(k.between(0, 90*time.Second)), p.ended.Add(k.between(0, 15*time.Second))
		result.Err, result.Gone = nil, p.ended
		k.mu.Unlock()
		k.results <- result
	})
	return nil
}

// Request, LastScan and Done implement control.DiskScanner.
func (i *incident) Request() {
	begun := time.Now().Add(time.Millisecond)
	time.AfterFunc(i.between(100*time.Millisecond, 8*time.Second), func() {
		i.mu.Lock()
		i.since = begun
		i.mu.Unlock()
		i.scanned <- struct{}{}
	})
}

func (i *incident) LastScan() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.since
}

func (i *incident) Done() <-chan struct{} { return i.scanned }

// Reclaim and Reclaimed implement control.Reclaimer.
func (i *incident) Reclaim(s eviction.Signal, _ []eviction.ReclaimStep, need eviction.Need) {
	time.AfterFunc(i.between(time.Millisecond, 40*time.Second), func() {
		i.mu.Lock()
		i.freed += need.Bytes * i.Int64N(5) / 4
		i.mu.Unlock()
		i.reclaimed <- s
	})
}

func (i *incident) Reclaimed() <-chan eviction.Signal { return i.reclaimed }

// UnknownPods implements control.UnknownPods.
func (i *incident) UnknownPods([]control.Pod) bool { return i.chance(2) }

// Left, Begin and Append implement ring: it is never full, and a new segment begins
// now and then.
func (i *incident) Left() int64 { return i.left }

func (i *incident) Begin(key []byte) error {
	i.left = roomForStep + 100<<10
	i.segments = append(i.segments, journal.Segment{Key: key})
	return nil
}

func (i *incident) Append(text []byte, _ bool) error {
	i.left -= int64(len(text))
	last := &i.segments[len(i.segments)-1]
	last.Records = append(last.Records, text)
	return nil
}

func (i *incident) manifests() (all []*v1.Pod) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, p := range i.pods {
		all = append(all, p.manifest)
	}
	return all
}

func (i *incident) setPods() {
	i.mu.Lock()
	var all []control.Pod
	for _, p := range i.pods {
		all = append(all, control.Pod{Pod: eviction.Digest(p.manifest), Arrived: p.arrived, Meter: meter{p}, Target: p})
	}
	i.mu.Unlock()
	i.loop.SetPods(all)
}

// add adds a pod that grows from now on.
func (i *incident) add(name string, uid int) {
	grace, priority := i.Int64N(40), int32(i.IntN(2))
	manifest := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(fmt.Sprint("uid-", uid))},
		Spec: v1.PodSpec{
			Priority: &priority, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
				v1.ResourceMemory:           *resource.NewQuantity(i.Int64N(6)*gibi, resource.BinarySI),
				v1.ResourceEphemeralStorage: *resource.NewQuantity(i.Int64N(40)*gibi, resource.BinarySI),
			}}}},
			Volumes: []v1.Volume{{Name: "dir", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}},
		},
	}
	if i.chance(2) {
		manifest.Spec.Volumes[0].EmptyDir.SizeLimit = resource.NewQuantity(20*gibi, resource.BinarySI)
	}
	if i.chance(2) {
		manifest.Annotations = map[string]string{eviction.NotifyAnnotation: "SIGUSR1"}
		manifest.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(i.Int64N(8)*gibi, resource.BinarySI)}
	}
	p := &growingPod{
		incident: i, manifest: manifest, memory: i.Int64N(3 * gibi), disk: i.Int64N(15 * gibi), tasks: 1 + i.Int64N(600), unlisted: i.chance(2), arrived: time.Since(i.begun) > 0 && i.chance(6),
		memoryRate: []int64{0, 0, 50, 300, 1500}[i.IntN(5)] * mebi / int64(1+i.IntN(10)), diskRate: []int64{0, 0, 200, 2000}[i.IntN(4)] * mebi / int64(1+i.IntN(10)),
		taskRate: []int64{0, 0, 0, 30}[i.IntN(4)],
	}
	p.memory -= int64(time.Since(i.begun).Seconds() * float64(p.memoryRate)) // rates count from the beginning
	p.disk -= int64(time.Since(i.begun).Seconds() * float64(p.diskRate))
	p.tasks -= int64(time.Since(i.begun).Seconds() * float64(p.taskRate))
	i.mu.Lock()
	i.pods = append(i.pods, p)
	i.mu.Unlock()
}

// sweep removes ended pods now and then.
func (i *incident) sweep() (names []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.pods = slices.DeleteFunc(i.pods, func(p *growingPod) bool {
		gone := !p.ended.IsZero() && i.chance(2) && time.Now().After(p.freesDisk) && time.Now().After(p.reapsAt)
		if gone {
			names = append(names, p.manifest.Name)
		}
		return gone
	})
	return names
}
