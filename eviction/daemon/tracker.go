package daemon

import (
	"cmp"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/cgroup"
	"github.com/evictd/evictd/cri/inventory"
	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/eviction/kill"
	"github.com/evictd/evictd/eviction/pods"
	"github.com/evictd/evictd/eviction/undo"
	"github.com/evictd/evictd/internal/podspec"
	"github.com/evictd/evictd/oom/apply"
	"github.com/evictd/evictd/stats"
	"github.com/evictd/evictd/stats/collect"
)

// defaultPodLogs is the directory of pods' logs (kubelet, podLogsDir).
const defaultPodLogs = "/var/log/pods"

// podTracker opens what the loop needs to measure and kill each pod, and closes it when the
// pod has left. One goroutine calls update and closeRemoved; pods may be called from any.
type podTracker struct {
	log       *slog.Logger
	cgroups   *cgroup.System // nil on a virtual node
	podsGroup *podsCgroup    // nil on a virtual node
	processes *collect.Processes
	changes   *undo.Log // nil in a dry run
	ban       *restartBan
	nodeFs    string
	logs      string // the directory of pods' logs
	disks     *collect.DiskScanner
	// ownSession is the session of the daemon; no pod can have it.
	ownSession int
	// node is the name of this host's Node.
	node string
	// arrives says of a pod that is seen first whether it has been bound since evictd has the pods
	// of the node, and no kubelet admits it.
	arrives func(types.UID) bool
	// plain has mirrors of static pods for other pods, where no kubelet makes mirrors; nil where one does.
	plain *pods.Plain
	// estimates makes pods that only the container runtime has.
	estimates pods.Estimator

	// outside are the cgroups outside of the pods that may be evicted; nil for none.
	outside *outsideGroups

	known   map[types.UID]*trackedPod
	crowded bool // there has been no room to keep the groups of every pod open
	// removed are pods that are no longer known, or known by another trackedPod, and
	// not closed yet.
	removed []*trackedPod

	mu      sync.Mutex
	current []*trackedPod
	beside  []*trackedPod // of outside
}

// trackedPod is a pod and what is open for it.
type trackedPod struct {
	control.Pod
	manifest *v1.Pod
	location pods.Location
	above    string // path of the pods' cgroup; "" on a virtual node
	disk     *collect.PodDisk
	meter    *meter        // nil where the pod cannot be measured
	session  *kill.Session // nil for a pod in a cgroup
	late     bool          // podTracker.arrives, when it was seen first
	*members
	restartable *restartable // nil where no container can be ended alone
	// scored is the number of tasks when its scores were last written. Owned by syncPods.
	scored stats.Amount
	// inits are the first processes of the containers. Owned by syncPods.
	inits apply.Inits
}

// update makes the loop's pods from manifests, API server, container runtime and runc. What
// is open for pods that have not changed stays open. changed says whether any pod has.
func (t *podTracker) update(fromFiles, fromCluster []*v1.Pod, runtime *inventory.Snapshot, bare []inventory.RuncContainer) (handled []control.Pod, changed bool) {
	if t.plain != nil {
		fromCluster = t.plain.Pods(fromFiles, fromCluster, t.node)
	}
	manifests, joined := t.estimates.Match(pods.Merge(fromFiles, fromCluster, t.node), runtime, t.node)
	above := t.podsPath()
	layout := t.layout(fromFiles, joined)
	located := layout.Locate(manifests)
	ofRunc := t.runcOnly(t.estimates.RuncPods(bare), manifests, located)
	if len(ofRunc) > 0 {
		manifests, located = t.addRuncPods(ofRunc, manifests, layout)
	}
	known := make(map[types.UID]*trackedPod, len(manifests))
	current := make([]*trackedPod, 0, len(manifests))
	handled = make([]control.Pod, 0, len(manifests))
	disks := make([]*collect.PodDisk, 0, len(manifests))
	for _, m := range manifests {
		at := located[m.UID]
		refused := at.Refused
		at.Refused = nil
		p := t.known[m.UID]
		if p == nil || p.manifest != m || p.location != at || p.above != above {
			p = t.open(m, at, p)
			if refused != nil {
				t.log.Warn("a pod can be neither measured nor evicted", "pod", p.String(), "error", refused)
			}
		}
		p.runtime.Store(joined[m])
		p.runc.Store(ofRunc[m])
		if joined[m] != nil {
			p.disk.SetRuntimeFigures(runtimeFigures(p.Containers, joined[m]))
		}
		known[m.UID] = p
		current, handled, disks = append(current, p), append(handled, p.Pod), append(disks, p.disk)
	}
	groups := t.openGroups(known)
	for _, g := range groups {
		handled = append(handled, g.Pod)
		if g.disk != nil {
			disks = append(disks, g.disk)
		}
	}
	for uid, p := range t.known {
		if known[uid] != p {
			t.removed = append(t.removed, p)
		}
	}
	t.known = known
	t.disks.SetPods(disks)
	if crowded := t.cgroups != nil && t.cgroups.Room().IsFull(); crowded && !t.crowded {
		t.crowded = true
		t.log.Warn("the files of some pods are opened at each look: evictd may open too few (LimitNOFILE)", "pods", len(handled))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	changed = t.current == nil || !slices.Equal(t.current, current) || !slices.Equal(t.beside, groups)
	t.current, t.beside = current, groups
	return handled, changed
}

// openGroups opens the cgroups outside of the pods, and adds them to those that are known.
func (t *podTracker) openGroups(known map[types.UID]*trackedPod) (groups []*trackedPod) {
	if t.outside == nil {
		return nil
	}
	for _, found := range t.outside.groups {
		m := found.manifest
		g := t.known[m.UID]
		if g == nil || g.manifest != m {
			g = &trackedPod{Pod: control.Pod{Pod: eviction.Digest(m)}, manifest: m, members: &members{containers: len(m.Spec.Containers)}}
			at := path.Join(t.outside.root, found.path)
			g.group = &podCgroup{cgroups: t.cgroups, path: at, above: t.outside.root, changes: t.changes, uid: m.UID, log: t.log}
			cfg := collect.PodConfig{Cgroups: t.cgroups, Cgroup: at, Child: g.members.child}
			for i := range m.Spec.Containers {
				cfg.Containers = append(cfg.Containers, m.Spec.Containers[i].Name)
			}
			if len(cfg.Containers) > 0 { // what a container writes counts for it
				g.disk = collect.NewPodDisk(collect.PodFiles{Root: t.nodeFs, Containers: cfg.Containers})
				g.disk.SetProcesses(g.members.processes)
				cfg.Disk = g.disk
			}
			g.meter = &meter{Pod: collect.NewPod(cfg)}
			g.Target, g.Usage, g.Meter, g.target = g.group, g.group.usage, g.meter, g.group
		}
		known[m.UID] = g
		groups = append(groups, g)
	}
	return groups
}

// closeRemoved closes what is open for the pods that have left, except for those in use.
// The caller makes sure that the loop has received the pods of the last update.
func (t *podTracker) closeRemoved(inUse func(types.UID) bool) {
	t.removed = slices.DeleteFunc(t.removed, func(p *trackedPod) bool {
		if inUse(p.UID) {
			return false
		}
		p.close()
		return true
	})
}

// close closes what is open for all pods. Neither the loop nor the killer runs any more.
func (t *podTracker) close() {
	t.closeRemoved(func(types.UID) bool { return false })
	for _, p := range t.known {
		p.close()
	}
}

// runcOnly are the pods that only runc has: no other pod has their uid, and their cgroup is
// below the pods' and overlaps no other.
func (t *podTracker) runcOnly(containers []pods.RuncPod, known []*v1.Pod, located map[types.UID]pods.Location) map[*v1.Pod]*pods.RuncPod {
	taken := func(cgroup string) bool {
		return slices.ContainsFunc(known, func(pod *v1.Pod) bool {
			other := located[pod.UID].Cgroup
			return other != "" && (strings.HasPrefix(cgroup+"/", other+"/") || strings.HasPrefix(other+"/", cgroup+"/"))
		})
	}
	alone := map[*v1.Pod]*pods.RuncPod{}
	for i := range containers {
		b := &containers[i]
		_, sameUID := located[b.UID]
		if cgroup := t.below(b.Cgroup); cgroup != "" && !sameUID && !taken(cgroup) {
			alone[b.Pod] = b
		}
	}
	return alone
}

// addRuncPods adds the pods that only runc has.
func (t *podTracker) addRuncPods(ofRunc map[*v1.Pod]*pods.RuncPod, known []*v1.Pod, layout pods.Layout) ([]*v1.Pod, map[types.UID]pods.Location) {
	all := slices.AppendSeq(slices.Clone(known), maps.Keys(ofRunc))
	slices.SortFunc(all, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	byRuntime := layout.RuntimeCgroup
	layout.RuntimeCgroup = func(pod *v1.Pod) string {
		if b := ofRunc[pod]; b != nil {
			return t.below(b.Cgroup)
		}
		return byRuntime(pod)
	}
	return all, layout.Locate(all)
}

// below is the path, relative to the pods' cgroup, of the cgroup in a directory; "" for one
// that is not below it.
func (t *podTracker) below(dir string) string {
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

// podsPath is the path of the pods' cgroup; "" on a virtual node.
func (t *podTracker) podsPath() string {
	if t.podsGroup == nil {
		return ""
	}
	return t.podsGroup.Path()
}

// pods are those of the last update.
func (t *podTracker) pods() []*trackedPod {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current
}

// manifests are the pods of the last update, and the cgroups outside of them.
func (t *podTracker) manifests() []*v1.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*v1.Pod
	for _, p := range slices.Concat(t.current, t.beside) {
		all = append(all, p.manifest)
	}
	return all
}

// UnknownPods says whether processes run in a group of the kubelet's naming that is
// that of none of the pods.
func (t *podTracker) UnknownPods(known []control.Pod) bool {
	theirs := make(map[string]bool, len(known))
	for i := range known {
		if g, ok := known[i].Target.(*podCgroup); ok {
			theirs[g.path] = true
		}
	}
	groups, _ := t.cgroups.PodGroups(t.podsGroup.get()) // of those that cannot be listed nothing can be said
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

// leaders are the process ids of the session leaders of pods without a cgroup.
func (t *podTracker) leaders() []int {
	var leaders []int
	for _, p := range t.pods() {
		if p.location.Session != 0 {
			leaders = append(leaders, p.location.Session)
		}
	}
	return leaders
}

// layout says where pods may be. Only the annotations of manifests count: their directory
// is the operator's, while any API user may write those of other pods.
func (t *podTracker) layout(fromFiles []*v1.Pod, joined map[*v1.Pod]*pods.RuntimePod) pods.Layout {
	l := pods.Layout{
		PodsCgroup: t.podsPath(),
		OwnSession: t.ownSession,
		Named:      func(types.UID, v1.PodQOSClass) string { return "" },
		QOSClass:   podspec.QOSClass,
		Trusted:    func(pod *v1.Pod) bool { return slices.Contains(fromFiles, pod) },
	}
	if t.cgroups != nil {
		l.OwnCgroups = []string{t.cgroups.Self()}
		l.Named = func(id types.UID, qos v1.PodQOSClass) string {
			return strings.TrimPrefix(t.podsGroup.get().Pod(string(id), qos), t.podsGroup.Path()+"/")
		}
		l.RuntimeCgroup = func(pod *v1.Pod) string {
			if joined[pod] == nil {
				return ""
			}
			below, is := strings.CutPrefix(joined[pod].Cgroup(), t.podsGroup.Path()+"/")
			if !is { // the runtime has other cgroups, or the pod is not below the pods' cgroup
				return ""
			}
			return below
		}
	}
	return l
}

// open finds what a pod is measured and killed by. before is the trackedPod that it replaces,
// nil for a new pod; the figures of its disks stay.
func (t *podTracker) open(m *v1.Pod, at pods.Location, before *trackedPod) *trackedPod {
	p := &trackedPod{Pod: control.Pod{Pod: eviction.Digest(m)}, manifest: m, location: at, above: t.podsPath(), members: &members{}, inits: apply.Inits{}}
	if before != nil {
		p.inits, p.late = before.inits, before.late
	} else {
		p.late = t.arrives(m.UID)
	}
	p.Estimated = t.estimates.Estimated(m)
	p.Arrived = p.late && !p.Estimated
	var containers []string
	for i := range p.Containers {
		containers = append(containers, p.Containers[i].Name)
	}
	p.containers = len(containers)
	files := collect.PodFiles{
		Root:       t.nodeFs,
		Volumes:    t.volumes(m),
		Logs:       collect.LogDir(t.logs, m.Namespace, m.Name, id(m)),
		EtcHosts:   collect.EtcHosts(t.nodeFs, id(m)),
		Own:        collect.OwnDir(t.nodeFs, id(m)),
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
		cfg.Cgroups, cfg.Cgroup = t.cgroups, path.Join(p.above, at.Cgroup)
		cfg.Child = p.members.child
		p.group = &podCgroup{cgroups: t.cgroups, path: cfg.Cgroup, above: p.above, changes: t.changes, ban: t.ban, uid: m.UID, log: t.log}
		p.Target, p.Usage = p.group, p.group.usage
		if p.restartable = newRestartable(p); p.restartable != nil {
			p.Container = p.restartable.at
		}
	case at.Session != 0:
		cfg.Processes, cfg.Leader = t.processes, at.Session
		opened, err := kill.NewSession("/proc", at.Session)
		if err != nil {
			t.log.Warn("the session of a pod cannot be opened", "pod", p.String(), "error", err)
			break
		}
		p.Target, p.session = opened, opened
	}
	p.target = p.Target
	if cfg.Cgroups == nil && cfg.Processes == nil {
		return p
	}
	p.meter = &meter{Pod: collect.NewPod(cfg)}
	p.Meter = p.meter
	return p
}

// close closes the descriptors of a pod, twenty for one that runs in a cgroup. Its cgroup
// stays usable, see podCgroup; its meter reads cgroup.ErrGone.
func (p *trackedPod) close() {
	if p.group != nil {
		p.group.close()
	}
	p.restartable.close()
	if p.session != nil {
		p.session.Close()
	}
	if p.meter != nil {
		p.meter.close()
	}
}

// meter reads a pod's statistics, from any goroutine until it is closed.
type meter struct {
	*collect.Pod
	mu     sync.Mutex
	closed bool
}

func (m *meter) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.Pod.Close()
}

// Read reads everything. A pod without processes is cgroup.ErrGone.
func (m *meter) Read(s *stats.Pod) error { return m.read(s, m.Pod.Read) }

// ReadMemory is Read as far as collect.Pod's reads.
func (m *meter) ReadMemory(s *stats.Pod, containers bool) error {
	return m.read(s, func(s *stats.Pod) error { return m.Pod.ReadMemory(s, containers) })
}

// read gives the only container of a pod what the pod uses, where the container has no
// group of its own.
func (m *meter) read(s *stats.Pod, from func(*stats.Pod) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return cgroup.ErrGone
	}
	err := from(s)
	if err == nil && !s.Processes.IsKnown() && !s.Threads.IsKnown() {
		return cgroup.ErrGone
	}
	if len(s.Containers) == 1 && !s.Containers[0].Memory.IsKnown() {
		s.Containers[0].Memory = s.Memory
	}
	return err
}

// id names a pod's directories and cgroup (kubelet): the uid, or the config hash of a static
// pod.
func id(m *v1.Pod) string {
	if hash := m.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(m.UID)
}

// volumes are the host directories of a pod's volumes; zero for those that are not measured.
// A hostPath is not (kubelet): its files are not the pod's and stay after its end.
func (t *podTracker) volumes(m *v1.Pod) []collect.PodPath {
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
