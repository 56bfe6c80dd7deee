package nodetable

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evictd/evictd/internal/podspec"
)

// The Lease evictd-NODE of this namespace has the headroom of the node in this
// annotation.
const (
	HeadroomNamespace  = "evictd-system"
	headroomPrefix     = "evictd-"
	headroomAnnotation = "evictd.io/pressure"
)

// Level is how close a node is to a threshold.
type Level uint8

// Levels, from far to beyond a threshold.
const (
	LevelOK Level = iota
	LevelTight
	LevelSoft
	LevelHard
)

var levels = map[string]Level{"ok": LevelOK, "tight": LevelTight, "soft": LevelSoft, "hard": LevelHard}

// String is the level as evictd writes it.
func (l Level) String() string { return [...]string{"ok", "tight", "soft", "hard"}[l] }

// Headroom is what evictd publishes of its node. It is immutable.
type Headroom struct {
	// Until is the end of validity, unless the Lease is renewed.
	Until time.Time
	// Signals by name, sorted.
	Signals []SignalLevel
	// Evicted are recent evictions from the node.
	Evicted []Eviction
}

// SignalLevel is the level of an eviction signal, such as memory.available.
type SignalLevel struct {
	Signal string
	Level  Level
}

// Eviction of a pod; Owner is that of OwnerOf. The signal may be empty.
type Eviction struct {
	Owner  types.UID
	Signal string
	At     time.Time
}

// NewHeadroom digests a Lease of HeadroomNamespace. node is empty for another
// program's Lease; h is nil without the annotation.
func NewHeadroom(lease *coordinationv1.Lease) (node string, h *Headroom, err error) {
	node, ours := strings.CutPrefix(lease.Name, headroomPrefix)
	text, told := lease.Annotations[headroomAnnotation]
	if lease.Namespace != HeadroomNamespace || !ours {
		return "", nil, nil
	}
	if !told || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return node, nil, nil
	}
	var published struct {
		V       int
		Signals map[string]struct{ Level string }
		Evicted []struct {
			Owner  types.UID
			Signal string
			At     time.Time
		}
	}
	if err := json.Unmarshal([]byte(text), &published); err != nil {
		return node, nil, fmt.Errorf("lease %s/%s: annotation %s: %w", lease.Namespace, lease.Name, headroomAnnotation, err)
	}
	if published.V != 1 {
		return node, nil, fmt.Errorf("lease %s/%s: annotation %s: version %d; expected 1", lease.Namespace, lease.Name, headroomAnnotation, published.V)
	}
	h = &Headroom{Until: lease.Spec.RenewTime.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)}
	for signal, s := range published.Signals {
		level, known := levels[s.Level]
		if !known {
			return node, nil, fmt.Errorf("lease %s/%s: annotation %s: signal %s: level %q; expected ok, tight, soft or hard", lease.Namespace, lease.Name, headroomAnnotation, signal, s.Level)
		}
		h.Signals = append(h.Signals, SignalLevel{signal, level})
	}
	slices.SortFunc(h.Signals, func(a, b SignalLevel) int { return strings.Compare(a.Signal, b.Signal) })
	for _, e := range published.Evicted {
		h.Evicted = append(h.Evicted, Eviction(e))
	}
	return node, h, nil
}

// SetHeadroom sets the headroom of a node, which may be unknown; nil removes it.
// changed is false if only Until differs.
func (t *Table) SetHeadroom(node Symbol, h *Headroom) (changed bool) {
	was := t.headroom[node]
	if t.headroom[node] = h; h == nil {
		delete(t.headroom, node)
	}
	if was == h || was != nil && h != nil && slices.Equal(was.Signals, h.Signals) && slices.EqualFunc(was.Evicted, h.Evicted, Eviction.same) {
		return false
	}
	t.Versions.Pressure++
	return true
}

func (e Eviction) same(o Eviction) bool {
	return e.Owner == o.Owner && e.Signal == o.Signal && e.At.Equal(o.At)
}

// Headroom is the headroom of a node; nil: there is none. It may be expired.
func (t *Table) Headroom(node Symbol) *Headroom { return t.headroom[node] }

// Bounds of the evictions that are kept.
const (
	keptEvictions   = 32 // per node
	evictionsWindow = 30 * time.Minute
)

// NewEviction digests a pod that evictd or the kubelet evicted; false: another pod.
func NewEviction(pod *v1.Pod) (node string, e Eviction, ok bool) {
	shown, is := podspec.EvictionOf(&pod.Status)
	if !is || pod.Spec.NodeName == "" {
		return "", e, false
	}
	if shown.At.IsZero() {
		shown.At = pod.CreationTimestamp.Time
	}
	return pod.Spec.NodeName, Eviction{Owner: OwnerOf(pod), At: shown.At}, true
}

// OwnerOf is the uid of a pod's controller, or of the pod.
func OwnerOf(pod *v1.Pod) types.UID {
	if controller := metav1.GetControllerOf(pod); controller != nil {
		return controller.UID
	}
	return pod.UID
}

// AddEviction adds an eviction from the pod's status, which arrives before the
// headroom and includes those of the kubelet. Its signal is empty. The latest 32 of
// the last half hour are kept, in any order of arrival.
func (t *Table) AddEviction(node Symbol, e Eviction) {
	kept := t.evictions[node]
	at, known := slices.BinarySearchFunc(kept, e, Eviction.compare)
	if known {
		return
	}
	if kept == nil {
		t.forgetEvictions(e.At)
	}
	kept = slices.Insert(kept, at, e)
	latest := kept[len(kept)-1].At
	kept = slices.DeleteFunc(kept, func(old Eviction) bool { return latest.Sub(old.At) > evictionsWindow })
	t.evictions[node] = slices.Delete(kept, 0, max(0, len(kept)-keptEvictions))
	t.Versions.Pressure++
}

func (e Eviction) compare(o Eviction) int {
	return cmp.Or(e.At.Compare(o.At), cmp.Compare(e.Owner, o.Owner), cmp.Compare(e.Signal, o.Signal))
}

// forgetEvictions removes those of deleted nodes, if there are many.
func (t *Table) forgetEvictions(now time.Time) {
	if len(t.evictions) < 2*max(keptEvictions, t.Len()) {
		return
	}
	maps.DeleteFunc(t.evictions, func(node Symbol, kept []Eviction) bool {
		return t.Row(node) == NoRow && now.Sub(kept[len(kept)-1].At) > evictionsWindow
	})
}

// Evictions are the kept evictions of a node.
func (t *Table) Evictions(node Symbol) []Eviction { return t.evictions[node] }
