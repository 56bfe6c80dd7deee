// Package runner is the playground's kubelet, as small as it can be: it runs the
// pods that are bound to its node, as real processes in cgroups that are laid out
// and sized as the kubelet does. It registers no node, watches no resource and
// evicts no pod: evictd does.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"syscall"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/stats"
)

// Config says what a runner runs, and where.
type Config struct {
	Node    string
	Cgroups *cgroup.System
	Pods    cgroup.Pods
	// Image is the only one there is. Its containers run Program, with their
	// arguments behind it. They begin at a byte on their standard input, and
	// answer with one once they are ready.
	Image   string
	Program []string
}

// Runner runs the pods of a node.
type Runner struct {
	cfg    Config
	client kubernetes.Interface
	log    *slog.Logger

	mu      sync.Mutex
	workers map[types.UID]*worker
	shares  map[types.UID]int64 // CPU that burstable pods request, thousandths
}

// New returns a runner of the pods of a node.
func New(cfg Config, client kubernetes.Interface, log *slog.Logger) *Runner {
	return &Runner{
		cfg: cfg, client: client, log: log.With("node", cfg.Node),
		workers: map[types.UID]*worker{}, shares: map[types.UID]int64{},
	}
}

// Run runs pods until ctx ends. Then it kills what is left of them, removes their
// cgroups, and says nothing of it to the API.
func (r *Runner) Run(ctx context.Context) error {
	for _, qos := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if err := r.cfg.Cgroups.Create(r.class(qos), cgroup.Limits{CPUShares: stats.Known(minShares)}); err != nil {
			return err
		}
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	factory := informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", r.cfg.Node).String()
	}))
	hand := func(object any, deleted bool) {
		if stale, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = stale.Obj
		}
		pod := object.(*v1.Pod)
		w, known := r.worker(pod, deleted)
		if w == nil {
			return
		}
		if !known {
			workers.Go(func() {
				w.run(ctx)
				r.forget(pod.UID)
			})
		}
		w.take(order{pod, deleted})
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { hand(o, false) },
		UpdateFunc: func(_, o any) { hand(o, false) },
		DeleteFunc: func(o any) { hand(o, true) },
	})
	if err != nil {
		return fmt.Errorf("watch pods of node %s: %w", r.cfg.Node, err)
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown() // no worker is added from here on
	return nil
}

// worker finds the pod's worker, or makes one for a pod that there is something to
// do about.
func (r *Runner) worker(pod *v1.Pod, deleted bool) (w *worker, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, known = r.workers[pod.UID]
	if !known && !deleted && (!final(pod.Status.Phase) || pod.DeletionTimestamp != nil) {
		w = newWorker(r, pod)
		r.workers[pod.UID] = w
	}
	return w, known
}

func (r *Runner) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.workers, uid)
}

// ErrNotRunning says that a pod has no process here.
var ErrNotRunning = errors.New("pod does not run here")

// Signal sends a signal to the pod's processes.
func (r *Runner) Signal(uid types.UID, s syscall.Signal) error {
	r.mu.Lock()
	w := r.workers[uid]
	r.mu.Unlock()
	if w == nil {
		return ErrNotRunning
	}
	return w.signal(s)
}

// class is the group of a class's pods.
func (r *Runner) class(qos v1.PodQOSClass) string { return path.Dir(r.cfg.Pods.Pod("x", qos)) }

// group is the pod's own. On systemd's layout as on the other a class's group is
// the one above it.
func (r *Runner) group(pod *v1.Pod) string {
	return r.cfg.Pods.Pod(string(pod.UID), podspec.QOSClass(pod))
}

// weigh gives the group of the burstable pods the CPU that they request together
// (kubelet, qosContainerManagerImpl).
func (r *Runner) weigh(pod *v1.Pod, runs bool) error {
	if podspec.QOSClass(pod) != v1.PodQOSBurstable {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.shares, pod.UID)
	if runs {
		r.shares[pod.UID] = cpuRequest(pod)
	}
	total := int64(0)
	for _, request := range r.shares {
		total += request
	}
	return r.cfg.Cgroups.Create(r.class(v1.PodQOSBurstable), cgroup.Limits{CPUShares: shares(total)})
}
