package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/cmd/evictd-playground/podprocess"
)

const (
	// restart passes at least between the end of a container and its next start,
	// doubled with each up to longestRestart. A container that was killed waits as
	// long as that at once: an eviction ends its processes before the API has it.
	restart        = time.Second
	longestRestart = time.Minute
	// retry passes before the API is asked again.
	retry = 500 * time.Millisecond
	// defaultGrace is that of a pod that names none.
	defaultGrace = 30 * time.Second
)

// order is what is to be done: run the pod as it is now, or, deleted, end it.
type order struct {
	pod     *v1.Pod
	deleted bool
}

// worker runs one pod; its goroutine owns everything but the queue and processes.
type worker struct {
	*Runner
	log    *slog.Logger
	orders chan order // holds the latest

	pod        *v1.Pod
	containers []*container
	due        []time.Time // when each may start
	ended      chan int    // which container's process has ended
	made       bool        // the pod's groups
	killAt     time.Time   // end of the grace; zero before its beginning
	told       bool        // the status says what is
	finished   bool        // the API knows that no process is left

	mu        sync.Mutex
	processes []*podprocess.Process
}

func newWorker(r *Runner, pod *v1.Pod) *worker {
	w := &worker{Runner: r, log: r.log.With("pod", pod.Namespace+"/"+pod.Name), orders: make(chan order, 1), pod: pod}
	for i := range pod.Spec.Containers {
		w.containers = append(w.containers, &container{spec: &pod.Spec.Containers[i], refused: r.refusal(pod, &pod.Spec.Containers[i])})
	}
	n := len(w.containers)
	w.due, w.processes, w.ended = make([]time.Time, n), make([]*podprocess.Process, n), make(chan int, n)
	return w
}

// refusal says why a container cannot run here.
func (r *Runner) refusal(pod *v1.Pod, c *v1.Container) *v1.ContainerStateWaiting {
	if c.Image != r.cfg.Image {
		return &v1.ContainerStateWaiting{Reason: "ErrImagePull", Message: fmt.Sprintf("the playground has one image, %s", r.cfg.Image)}
	}
	if len(pod.Spec.InitContainers) > 0 || len(c.Command) > 0 {
		return &v1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: "the playground runs no init containers and no commands; give args"}
	}
	return nil
}

// take replaces the order that waits. Only the informer's goroutine calls it.
func (w *worker) take(o order) {
	select {
	case <-w.orders:
	default:
	}
	w.orders <- o
}

func (w *worker) run(ctx context.Context) {
	defer w.tidy()
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-w.orders:
			if o.deleted {
				return
			}
			w.pod = o.pod
		case i := <-w.ended:
			w.recordEnd(i)
		case <-next.C:
		}
		wait, err := w.step(ctx)
		if err != nil && ctx.Err() == nil {
			w.log.Warn("pod not as it should be", "error", err)
			wait = retry
		}
		if wait > 0 {
			next.Reset(wait)
		}
	}
}

// step brings the pod closer to what it should be, and says after what time to
// look again; 0 is when something has happened.
func (w *worker) step(ctx context.Context) (again time.Duration, err error) {
	ending := w.pod.DeletionTimestamp != nil || final(w.pod.Status.Phase)
	if ending && !w.lives() {
		return 0, w.finish(ctx)
	}
	if ending {
		again = w.end()
	} else if again, err = w.start(ctx); err != nil {
		return 0, err
	}
	if !w.told {
		err = w.writeStatus(ctx, false)
	}
	return again, err
}

func (w *worker) lives() bool {
	for _, c := range w.containers {
		if c.pid != 0 {
			return true
		}
	}
	return false
}

// start starts what shall run and does not.
func (w *worker) start(ctx context.Context) (again time.Duration, err error) {
	for i, c := range w.containers {
		if c.pid != 0 || c.refused != nil || c.over(w.pod.Spec.RestartPolicy) {
			continue
		}
		if left := time.Until(w.due[i]); left > 0 {
			if again == 0 || left < again {
				again = left
			}
			continue
		}
		if c.last != nil {
			if now, err := w.get(ctx); err != nil || final(now.Status.Phase) || now.DeletionTimestamp != nil {
				return retry, err // an order says so too
			}
			c.restarts++
		}
		c.failed = nil
		if err := w.launch(ctx, i); err != nil {
			w.log.Warn("container not started", "container", c.spec.Name, "error", err)
			c.failed = &v1.ContainerStateWaiting{Reason: "RunContainerError", Message: err.Error()}
			return retry, ctx.Err()
		}
	}
	return again, nil
}

// launch starts a container in its group and waits until it is ready.
func (w *worker) launch(ctx context.Context, i int) error {
	c, group := w.containers[i], w.group(w.pod)
	at := path.Join(group, c.spec.Name)
	w.made, w.told = true, false
	err := errors.Join(w.weigh(w.pod, true), w.cfg.Cgroups.Create(group, podLimits(w.pod)))
	if err == nil {
		err = w.cfg.Cgroups.Create(at, containerLimits(c.spec))
	}
	if err != nil {
		return err
	}
	p, err := podprocess.Start(w.cfg.Program, c.spec.Args...)
	if err != nil {
		return err
	}
	c.pid, c.began = p.PID(), metav1.Now()
	w.mu.Lock()
	w.processes[i] = p
	w.mu.Unlock()
	go func() { // it ends with the process, which tidy waits for
		<-p.Ended()
		w.ended <- i
	}()
	if err := w.cfg.Cgroups.Add(at, p.PID()); err != nil {
		p.Kill()
		if errors.Is(err, syscall.ESRCH) { // killed meanwhile: its end shows by itself
			return nil
		}
		return err
	}
	_ = p.Fill() // its end shows by itself
	return nil
}

// end sends the processes SIGTERM, and kills them when their grace is over.
func (w *worker) end() (again time.Duration) {
	if w.killAt.IsZero() {
		grace := defaultGrace
		for _, seconds := range []*int64{w.pod.Spec.TerminationGracePeriodSeconds, w.pod.DeletionGracePeriodSeconds} {
			if seconds != nil {
				grace = time.Duration(*seconds) * time.Second
			}
		}
		w.killAt = time.Now().Add(grace)
		_ = w.signal(syscall.SIGTERM)
	}
	if left := time.Until(w.killAt); left > 0 {
		return left
	}
	_ = w.signal(syscall.SIGKILL)
	return 0
}

func (w *worker) signal(s syscall.Signal) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := ErrNotRunning
	for _, p := range w.processes {
		if p != nil && p.Running() {
			err = p.Signal(s)
		}
	}
	return err
}

// recordEnd records the end of a container's process.
func (w *worker) recordEnd(i int) {
	c := w.containers[i]
	at, state := w.processes[i].End()
	status := state.Sys().(syscall.WaitStatus)
	c.ended(metav1.NewTime(at), status, w.outOfMemory(c))
	wait := min(restart<<min(c.restarts, 10), longestRestart)
	if status.Signaled() && c.last.Reason != "OOMKilled" {
		wait = longestRestart
	}
	w.due[i] = at.Add(wait)
	w.told = false
}

// outOfMemory says whether the kernel killed the container for lack of memory.
func (w *worker) outOfMemory(c *container) bool {
	kills, err := w.cfg.Cgroups.OOMKills(path.Join(w.group(w.pod), c.spec.Name))
	killed := err == nil && kills.Or(0) > c.kills
	c.kills = kills.Or(c.kills)
	return killed
}

// finish removes the groups of a pod whose processes have ended, reports that, and
// removes it from the API if it was deleted.
func (w *worker) finish(ctx context.Context) error {
	if err := w.remove(); err != nil {
		return err
	}
	if !w.finished {
		if err := w.writeStatus(ctx, true); err != nil {
			return err
		}
		w.finished = true
	}
	if w.pod.DeletionTimestamp == nil {
		return nil
	}
	err := w.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &w.pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// get reads the pod as it is now.
func (w *worker) get(ctx context.Context) (*v1.Pod, error) {
	pod, err := w.client.CoreV1().Pods(w.pod.Namespace).Get(ctx, w.pod.Name, metav1.GetOptions{})
	if err == nil && pod.UID != w.pod.UID {
		return nil, fmt.Errorf("pod has become another: uid %s", pod.UID)
	}
	return pod, err
}

// writeStatus writes the status, unless another program writes it at the same time; then it
// is tried again.
func (w *worker) writeStatus(ctx context.Context, gone bool) error {
	pod, err := w.get(ctx)
	if err == nil {
		report(pod, w.containers, gone, metav1.Now())
		_, err = w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	}
	w.told = err == nil || apierrors.IsNotFound(err)
	if w.told {
		return nil
	}
	return fmt.Errorf("write status: %w", err)
}

// tidy ends what is left of the pod.
func (w *worker) tidy() {
	for i, p := range w.processes {
		if p != nil {
			p.Kill()
			if w.containers[i].pid != 0 {
				<-w.ended
			}
		}
	}
	if err := w.remove(); err != nil {
		w.log.Warn("cgroup is left behind", "error", err)
	}
}

// remove takes the pod's groups away. None of its processes may be left.
func (w *worker) remove() error {
	if !w.made {
		return nil
	}
	err := errors.Join(w.cfg.Cgroups.Delete(w.group(w.pod)), w.weigh(w.pod, false))
	w.made = err != nil
	return err
}
