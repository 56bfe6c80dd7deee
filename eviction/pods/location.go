package pods

import (
	"cmp"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations that say where a pod lives.
const (
	// CgroupAnnotation is the pod's cgroup, a path below the pods' cgroup.
	CgroupAnnotation = "evictd.io/cgroup"
	// SessionAnnotation is the process id of the leader of the session that
	// holds the pod's processes, for hosts where cgroups cannot be read.
	SessionAnnotation = "evictd.io/session"
	// configHashAnnotation is set by the kubelet on a static pod, and names
	// its cgroup in place of the uid.
	configHashAnnotation = "kubernetes.io/config.hash"
)

// Location is where a pod's processes are. The zero Location is nowhere: such
// a pod has no statistics.
type Location struct {
	Cgroup  string   // below the pods' cgroup, clean; "" for none
	Session int      // process id of the session's leader; 0 for none
	Refused *Refusal // why the pod is nowhere; nil where it is not
}

// Reason says why a pod is nowhere.
type Reason uint8

// The reasons.
const (
	Unnamed     Reason = iota + 1 // neither a uid, nor an annotation that counts
	Escapes                       // the path is not below the pods' cgroup
	PodsCgroup                    // the path is the pods' cgroup itself
	HoldsDaemon                   // the daemon runs in the cgroup or below it, or in the session
	Overlaps                      // another pod has the cgroup, one above, or one below it, or the session
	NotProcess                    // the session is not the process id of a leader that a pod can have
)

var reasons = [...]string{
	Unnamed:     "has neither a uid nor an annotation that says where it lives",
	Escapes:     "is not below the pods' cgroup",
	PodsCgroup:  "is the pods' cgroup itself",
	HoldsDaemon: "holds the daemon itself",
	Overlaps:    "overlaps that of pod",
	NotProcess:  "is not the process id of a session's leader",
}

func (r Reason) String() string { return reasons[r] }

// Refusal is the error of a pod whose location is not believed.
type Refusal struct {
	Reason     Reason
	Annotation string // that is refused; "" where the pod has none
	Value      string // its value, or the path by the kubelet's naming
	Other      string // namespace/name of the pod in the way, with Overlaps
}

func (r *Refusal) Error() string {
	if r.Reason == Unnamed {
		return "pod " + r.Reason.String()
	}
	subject := "cgroup"
	if r.Annotation != "" {
		subject = "annotation " + r.Annotation
	}
	return strings.TrimSpace(fmt.Sprintf("%s %q %s %s", subject, r.Value, r.Reason, r.Other))
}

// Layout is what locating pods needs to know of the host.
type Layout struct {
	// PodsCgroup holds all pods, OwnCgroups hold the daemon: one, or where v1
	// controllers differ several. Paths from the root of the hierarchy.
	PodsCgroup string
	OwnCgroups []string
	// OwnSession is the session id of the daemon.
	OwnSession int
	// Named is the kubelet's path below the pods' cgroup for the pod's id; ""
	// where pods have no cgroups.
	Named func(id types.UID, qos v1.PodQOSClass) string
	// QOSClass is the pod's class by its requests and limits.
	QOSClass func(*v1.Pod) v1.PodQOSClass
	// RuntimeCgroup is where the container runtime has the pod, below the
	// pods' cgroup; "" where it does not. Nil: there is none to ask.
	RuntimeCgroup func(*v1.Pod) string
	// Trusted says whether the pod's evictd.io annotations count. Only those
	// of a manifest directory of this host do. Nil trusts none.
	Trusted func(*v1.Pod) bool
}

// Locate finds the location of each pod, by its uid. Of pods that ask for
// overlapping places the kubelet's own naming wins over the annotations of this
// package, and then the first by namespace and name.
func (l Layout) Locate(pods []*v1.Pod) map[types.UID]Location {
	claims := make([]claim, len(pods))
	for i, pod := range pods {
		claims[i] = l.claim(pod)
	}
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.trust, b.trust), compareNames(a.pod, b.pod), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	located := make(map[types.UID]Location, len(pods))
	taken := places{at: map[string]string{}, above: map[string]string{}, sessions: map[int]string{}}
	for _, c := range claims {
		if _, seen := located[c.pod.UID]; seen {
			continue
		}
		location, refusal := l.judge(c, taken)
		if refusal != nil {
			location = Location{Refused: refusal}
		}
		taken.take(location, fullName(c.pod))
		located[c.pod.UID] = location
	}
	return located
}

// claim is what a pod asks for.
type claim struct {
	pod        *v1.Pod
	trust      trust
	cgroup     string // "" asks for none
	session    string // likewise
	annotation string // that the cgroup comes from; "" for the uid
}

// trust orders claims. A uid is given by the API server, and what the runtime runs
// was given to it by the kubelet; the author of a pod also writes its annotations.
type trust uint8

const (
	byUID trust = iota // or by the runtime
	byHash
	byAnnotation
)

func (l Layout) claim(pod *v1.Pod) claim {
	c := claim{pod: pod}
	if l.Trusted != nil && l.Trusted(pod) {
		c.session = pod.Annotations[SessionAnnotation]
		if cgroup, given := pod.Annotations[CgroupAnnotation]; given {
			c.trust, c.cgroup, c.annotation = byAnnotation, path.Clean(cgroup), CgroupAnnotation
			return c
		}
	}
	if l.RuntimeCgroup != nil {
		if c.cgroup = l.RuntimeCgroup(pod); c.cgroup != "" {
			return c
		}
	}
	id := pod.UID
	if hash := types.UID(pod.Annotations[configHashAnnotation]); isElement(hash) {
		c.trust, c.annotation, id = byHash, configHashAnnotation, hash
	}
	if isElement(id) { // one that stands for namespace/name is not
		c.cgroup = l.Named(id, l.QOSClass(pod))
	}
	if c.cgroup != "" {
		c.cgroup = path.Clean(c.cgroup)
	}
	return c
}

// isElement says whether the kubelet could have named a cgroup by the id.
func isElement(id types.UID) bool { return id != "" && !strings.Contains(string(id), "/") }

// judge grants what the pod asks for whole, or refuses it.
func (l Layout) judge(c claim, taken places) (Location, *Refusal) {
	if c.cgroup == "" && c.session == "" {
		return Location{}, &Refusal{Reason: Unnamed}
	}
	var granted Location
	if c.cgroup != "" {
		if reason, other := l.judgeCgroup(c.cgroup, taken); reason != 0 {
			return Location{}, &Refusal{Reason: reason, Annotation: c.annotation, Value: c.cgroup, Other: other}
		}
		granted.Cgroup = c.cgroup
	}
	if c.session != "" {
		session, reason, other := l.judgeSession(c.session, taken)
		if reason != 0 {
			return Location{}, &Refusal{Reason: reason, Annotation: SessionAnnotation, Value: c.session, Other: other}
		}
		granted.Session = session
	}
	return granted, nil
}

func (l Layout) judgeCgroup(cgroup string, taken places) (refused Reason, other string) {
	if cgroup == "." {
		return PodsCgroup, ""
	}
	if !filepath.IsLocal(cgroup) {
		return Escapes, ""
	}
	for _, own := range l.OwnCgroups {
		if holds(path.Join("/", l.PodsCgroup, cgroup), path.Join("/", own)) {
			return HoldsDaemon, ""
		}
	}
	if other := taken.overlap(cgroup); other != "" {
		return Overlaps, other
	}
	return 0, ""
}

// judgeSession never grants session 1: it is the host's, or all of a container.
func (l Layout) judgeSession(value string, taken places) (session int, refused Reason, other string) {
	session, err := strconv.Atoi(value)
	switch other := taken.sessions[session]; {
	case err != nil || session <= 1:
		return 0, NotProcess, ""
	case session == l.OwnSession:
		return 0, HoldsDaemon, ""
	case other != "":
		return 0, Overlaps, other
	}
	return session, 0, ""
}

// holds says whether other is the cgroup above or lies below it.
func holds(above, other string) bool {
	return above == other || strings.HasPrefix(other, above+"/")
}

// places maps each cgroup that a pod has, each one above such a cgroup, and
// each session to the name of (one of) the pods.
type places struct {
	at, above map[string]string
	sessions  map[int]string
}

func (p places) take(l Location, pod string) {
	if l.Cgroup != "" {
		p.at[l.Cgroup] = pod
		for dir := path.Dir(l.Cgroup); dir != "."; dir = path.Dir(dir) {
			p.above[dir] = pod
		}
	}
	if l.Session != 0 {
		p.sessions[l.Session] = pod
	}
}

// overlap names a pod that has the cgroup, one above or one below it.
func (p places) overlap(cgroup string) string {
	for dir := cgroup; dir != "."; dir = path.Dir(dir) {
		if pod := p.at[dir]; pod != "" {
			return pod
		}
	}
	return p.above[cgroup]
}
