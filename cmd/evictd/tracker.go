package main

import (
	"cmp"
	"log/slog"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/wire"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// podLogs is where the kubelet keeps the logs of pods.
const podLogs = "/var/log/pods"

// tracker turns manifests into pods that the loop can measure and end. One
// goroutine calls track; what it made is used by others.
type tracker struct {
	log       *slog.Logger
	cgroups   *cgroup.System // nil where there are none to use
	podsGroup cgroup.Pods
	processes *collect.Processes
	changes   *undo.Log // nil where nothing may be changed for a while
	nodeFs    string
	survey    *collect.DiskScanner
	// ownSession of the daemon, which no pod can have.
	ownSession int
	// node is what the API server calls this host.
	node string
	// estimates are the pods that only the container runtime knows.
	estimates pods.Estimates

	known map[types.UID]*tracked
	left  int // pods since the last collection

	mu      sync.Mutex
	current []*tracked
}

// tracked is one pod and the means to deal with it.
type tracked struct {
	control.Pod
	manifest *v1.Pod
	location pods.Location
	disk     *collect.PodDisk
	*members
	// scored is how many tasks it had when its scores were last looked at. It is of
	// follow.
	scored stats.Amount
}

// track makes the loop's pods of those of the manifests, of the API server and of
// the container runtime, keeps what it had of those that have not changed, and
// says whether any has.
func (t *tracker) track(fromFiles, fromCluster []*v1.Pod, runtime *wire.Inventory, bare []wire.Bare) (handled []control.Pod, changed bool) {
	manifests, joined := t.estimates.Join(pods.Merge(fromFiles, fromCluster, t.node), runtime, t.node)
	layout := t.layout(fromFiles, joined)
	located := layout.Locate(manifests)
	bares := t.unknown(t.estimates.Bare(bare), manifests, located)
	if len(bares) > 0 {
		manifests, located = t.join(bares, manifests, layout)
	}
	known := make(map[types.UID]*tracked, len(manifests))
	current := make([]*tracked, 0, len(manifests))
	handled = make([]control.Pod, 0, len(manifests))
	disks := make([]*collect.PodDisk, 0, len(manifests))
	for _, m := range manifests {
		at := located[m.UID]
		refused := at.Refused
		at.Refused = nil
		p := t.known[m.UID]
		if p == nil || p.manifest != m || p.location != at {
			p = t.open(m, at, p)
			if refused != nil {
				t.log.Warn("a pod can be neither measured nor evicted", "pod", p.String(), "error", refused)
			}
		}
		p.runtime.Store(joined[m])
		p.bare.Store(bares[m])
		if joined[m] != nil {
			p.disk.SetRuntimeFigures(told(p.Containers, joined[m]))
		}
		known[m.UID] = p
		current, handled, disks = append(current, p), append(handled, p.Pod), append(disks, p.disk)
	}
	for uid, p := range t.known {
		if known[uid] != p {
			t.left++
		}
	}
	t.known = known
	t.survey.SetPods(disks)
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.current == nil || !slices.Equal(t.current, current)
	t.current = current
	return handled, changed
}

// leftOver is how many pods may leave before a sweep.
const leftOver = 32

// sweep has the collector close what was open for pods that have left, some twenty
// descriptors each. By itself it comes every two minutes, and meanwhile the kernel
// keeps the groups.
func (t *tracker) sweep() {
	if t.left > leftOver {
		t.left = 0
		runtime.GC()
	}
}

// unknown are the pods that nobody but runc knows: they have the uid of no other,
// and their cgroup is below the pods' and apart from every other.
func (t *tracker) unknown(bares []pods.Bare, known []*v1.Pod, located map[types.UID]pods.Location) map[*v1.Pod]*pods.Bare {
	taken := func(cgroup string) bool {
		return slices.ContainsFunc(known, func(pod *v1.Pod) bool {
			other := located[pod.UID].Cgroup
			return other != "" && (strings.HasPrefix(cgroup+"/", other+"/") || strings.HasPrefix(other+"/", cgroup+"/"))
		})
	}
	alone := map[*v1.Pod]*pods.Bare{}
	for i := range bares {
		b := &bares[i]
		_, sameUID := located[b.UID]
		if cgroup := t.below(b.Cgroup); cgroup != "" && !sameUID && !taken(cgroup) {
			alone[b.Pod] = b
		}
	}
	return alone
}

// join adds the pods that nobody but runc knows.
func (t *tracker) join(bares map[*v1.Pod]*pods.Bare, known []*v1.Pod, layout pods.Layout) ([]*v1.Pod, map[types.UID]pods.Location) {
	all := slices.AppendSeq(slices.Clone(known), maps.Keys(bares))
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	byRuntime := layout.Told
	layout.Told = func(pod *v1.Pod) string {
		if b := bares[pod]; b != nil {
			return t.below(b.Cgroup)
		}
		return byRuntime(pod)
	}
	return all, layout.Locate(all)
}

// below is the path of a group below the pods', by its directory; "" where it is
// not one of these.
func (t *tracker) below(dir string) string {
	if t.cgroups == nil {
		return ""
	}
	group, is := strings.CutPrefix(dir, t.cgroups.Mount("memory"))
	below, isPods := strings.CutPrefix(group, t.podsGroup.Path()+"/")
	if !is || !isPods {
		return ""
	}
	return below
}

// tracked are the pods of the last call of track.
func (t *tracker) tracked() []*tracked {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// manifests are the pods of the last call of track.
func (t *tracker) manifests() []*v1.Pod {
	var all []*v1.Pod
	for _, p := range t.tracked() {
		all = append(all, p.manifest)
	}
	return all
}

// Strangers says whether processes run in a group of the kubelet's naming that is
// that of none of the pods.
func (t *tracker) Strangers(known []control.Pod) bool {
	theirs := make(map[string]bool, len(known))
	for i := range known {
		if g, ok := known[i].Target.(*group); ok {
			theirs[g.path] = true
		}
	}
	groups, _ := t.cgroups.PodGroups(t.podsGroup) // of those that cannot be listed nothing can be said
	return slices.ContainsFunc(groups, func(g cgroup.PodGroup) bool {
		if theirs[g.Path] {
			return false
		}
		opened, err := t.cgroups.Open(g.Path)
		if err != nil {
			return false
		}
		defer opened.Close()
		populated, _ := opened.Populated()
		return populated
	})
}

// leaders are the session leaders of the pods that live in sessions.
func (t *tracker) leaders() []int {
	var leaders []int
	for _, p := range t.tracked() {
		if p.location.Session != 0 {
			leaders = append(leaders, p.location.Session)
		}
	}
	return leaders
}

// layout says where pods may be. The annotations of a manifest count, for it
// comes from the directory that the operator named; anybody may have written
// those of other pods.
func (t *tracker) layout(fromFiles []*v1.Pod, joined map[*v1.Pod]*pods.Runtime) pods.Layout {
	l := pods.Layout{
		PodsCgroup: t.podsGroup.Path(),
		OwnSession: t.ownSession,
		Named:      func(types.UID, v1.PodQOSClass) string { return "" },
		QOSClass:   eviction.QOSClass,
		Trusted:    func(pod *v1.Pod) bool { return slices.Contains(fromFiles, pod) },
	}
	if t.cgroups != nil {
		l.OwnCgroups = []string{t.cgroups.Self()}
		l.Named = func(id types.UID, qos v1.PodQOSClass) string {
			return strings.TrimPrefix(t.podsGroup.Pod(string(id), qos), t.podsGroup.Path()+"/")
		}
		l.Told = func(pod *v1.Pod) string {
			if joined[pod] == nil {
				return ""
			}
			below, is := strings.CutPrefix(joined[pod].Cgroup(), t.podsGroup.Path()+"/")
			if !is { // the runtime sees other cgroups, or the pod is none of these
				return ""
			}
			return below
		}
	}
	return l
}

// open finds the means to measure and to end a pod. before is what there was for
// it, nil without; what is known of its disks stays.
func (t *tracker) open(m *v1.Pod, at pods.Location, before *tracked) *tracked {
	p := &tracked{Pod: control.Pod{Pod: eviction.Digest(m)}, manifest: m, location: at, members: &members{}}
	p.Estimated = t.estimates.Estimated(m)
	var containers []string
	for i := range p.Containers {
		containers = append(containers, p.Containers[i].Name)
	}
	p.containers = len(containers)
	files := collect.PodFiles{
		Root:       t.nodeFs,
		Volumes:    t.volumes(m),
		Logs:       collect.LogDir(podLogs, m.Namespace, m.Name, id(m)),
		EtcHosts:   collect.EtcHosts(t.nodeFs, id(m)),
		Containers: containers,
	}
	if before != nil && before.location == at && before.disk.Matches(&files) {
		p.disk = before.disk
	} else {
		p.disk = collect.NewPodDisk(files)
	}
	p.disk.SetProcesses(p.members.processes)
	cfg := collect.PodConfig{Containers: containers, Disk: p.disk}
	switch {
	case t.cgroups != nil && at.Cgroup != "":
		cfg.Cgroups, cfg.Cgroup = t.cgroups, path.Join(t.podsGroup.Path(), at.Cgroup)
		cfg.Child = p.members.child
		p.group = &group{cgroups: t.cgroups, path: cfg.Cgroup, above: t.podsGroup.Path(), changes: t.changes, log: t.log}
		p.Target, p.Usage = p.group, p.group.usage
	case at.Session != 0:
		cfg.Processes, cfg.Leader = t.processes, at.Session
		opened, err := kill.NewSession("/proc", at.Session)
		if err != nil {
			t.log.Warn("a pod's session cannot be used", "pod", p.String(), "error", err)
			break
		}
		target := &session{opened}
		runtime.AddCleanup(target, func(opened *kill.Session) { opened.Close() }, opened)
		p.Target = target
	}
	p.target = p.Target
	if cfg.Cgroups == nil && cfg.Processes == nil {
		return p
	}
	meter := &meter{collect.NewPod(cfg)}
	// The loop may use a meter for a while after the pod has left. What its pod asks,
	// the members, must not lead back to the meter, or it would never be closed.
	runtime.AddCleanup(meter, func(pod *collect.Pod) { pod.Close() }, meter.Pod)
	p.Meter = meter
	return p
}

// session is closed when nobody uses it any more.
type session struct{ *kill.Session }

// meter is a pod's statistics, closed when nobody uses them any more.
type meter struct{ *collect.Pod }

// Read adds what needs no group of its own: a pod's only container uses what
// the pod uses. A pod that is not there, or no longer, is cgroup.ErrGone.
func (m *meter) Read(s *stats.Pod) error { return complete(s, m.Pod.Read(s)) }

// ReadMemory is Read as far as collect.Pod's goes.
func (m *meter) ReadMemory(s *stats.Pod, containers bool) error {
	return complete(s, m.Pod.ReadMemory(s, containers))
}

func complete(s *stats.Pod, err error) error {
	if err == nil && !s.Processes.IsKnown() && !s.Threads.IsKnown() {
		return cgroup.ErrGone
	}
	if len(s.Containers) == 1 && !s.Containers[0].Memory.IsKnown() {
		s.Containers[0].Memory = s.Memory
	}
	return err
}

// id is what the kubelet names a pod's directories and cgroup by.
func id(m *v1.Pod) string {
	if hash := m.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(m.UID)
}

// volumes are the host directories of a pod's volumes; nowhere for those that are
// not measured. A hostPath is not, as in the kubelet: what lies there was there
// before the pod, or is other pods' too, and does not go with it.
func (t *tracker) volumes(m *v1.Pod) []collect.PodPath {
	dirs := make([]collect.PodPath, len(m.Spec.Volumes))
	for i := range m.Spec.Volumes {
		v := &m.Spec.Volumes[i]
		switch {
		case v.EmptyDir != nil:
			dirs[i] = collect.Volume(t.nodeFs, id(m), collect.EmptyDir, v.Name)
		case v.ConfigMap != nil:
			dirs[i] = collect.Volume(t.nodeFs, id(m), collect.ConfigMap, v.Name)
		case v.GitRepo != nil:
			dirs[i] = collect.Volume(t.nodeFs, id(m), collect.GitRepo, v.Name)
		}
	}
	return dirs
}
