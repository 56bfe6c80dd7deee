package nodetable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/evictd/evictd/internal/require"
)

func lease(name, annotation string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: HeadroomNamespace, Name: name, Annotations: map[string]string{headroomAnnotation: annotation}}}
	l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(1000, 0)}
	l.Spec.LeaseDurationSeconds = ptr.To[int32](40)
	return l
}

const annotationOfN1 = `{"v":1,"signals":{"pid.available":{"level":"ok"},"memory.available":{"level":"tight","available":"700Mi","threshold":"500Mi","secondsToThreshold":42}},` +
	`"evicted":[{"owner":"o","signal":"memory.available","at":"1970-01-01T00:15:00Z"}]}`

func TestHeadroomIsReadFromTheNodesLease(t *testing.T) {
	node, h, err := NewHeadroom(lease("evictd-n1", annotationOfN1))
	require.NoError(t, err)
	got := fmt.Sprintf("%s %d %v %s %d", node, h.Until.Unix(), h.Signals, h.Evicted[0].Owner, h.Evicted[0].At.Unix())
	if want := "n1 1040 [{memory.available tight} {pid.available ok}] o 900"; got != want {
		t.Errorf("read %s, want %s", got, want)
	}
}

func TestLeaseThatSaysNothingOfANodeIsLeftOut(t *testing.T) {
	silent := lease("evictd-n1", annotationOfN1)
	silent.Annotations = nil
	elsewhere := lease("evictd-n1", annotationOfN1)
	elsewhere.Namespace = "kube-node-lease"
	for _, l := range []*coordinationv1.Lease{silent, elsewhere, lease("other", annotationOfN1)} {
		if _, h, err := NewHeadroom(l); h != nil || err != nil {
			t.Errorf("%s/%s: headroom %v, error %v", l.Namespace, l.Name, h, err)
		}
	}
}

func TestHeadroomThatCannotBeReadNamesLeaseAndFault(t *testing.T) {
	for annotation, want := range map[string]string{
		"{":       "unexpected end",
		`{"v":2}`: "version 2; expected 1",
		`{"v":1,"signals":{"s":{"level":"low"}}}`: `signal s: level "low"; expected ok`,
	} {
		_, h, err := NewHeadroom(lease("evictd-n1", annotation))
		if h != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "lease evictd-system/evictd-n1") {
			t.Errorf("%s: headroom %v, error %v", annotation, h, err)
		}
	}
}

func TestRenewalAloneIsNoChange(t *testing.T) {
	table := New()
	set := func(annotation string, renewed int64) bool {
		l := lease("evictd-n1", annotation)
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Unix(renewed, 0)}
		node, h, err := NewHeadroom(l)
		require.NoError(t, err)
		return table.SetHeadroom(Intern(node), h)
	}
	if !set(annotationOfN1, 0) || set(annotationOfN1, 10) || !set(strings.Replace(annotationOfN1, "tight", "soft", 1), 20) {
		t.Error("a change was missed, or seen where only the time was new")
	}
	if version := table.Versions.Pressure; !table.SetHeadroom(Intern("n1"), nil) || table.SetHeadroom(Intern("n1"), nil) || table.Versions.Pressure == version {
		t.Error("what is forgotten once is a change once")
	}
}

// TestTheLatestEvictionsAreKeptInWhateverOrderTheyAreReported: the initial list of
// failed pods does not replace recent evictions.
func TestTheLatestEvictionsAreKeptInWhateverOrderTheyAreReported(t *testing.T) {
	table, node, now := New(), Intern("n1"), time.Unix(100_000, 0)
	just := Eviction{Owner: "just", At: now}
	table.AddEviction(node, just)
	for i := range 2 * keptEvictions {
		table.AddEviction(node, Eviction{Owner: types.UID(fmt.Sprint(i)), At: now.Add(-time.Duration(i+1) * 24 * time.Hour)})
	}
	if got := table.Evictions(node); len(got) != 1 || !got[0].same(just) {
		t.Errorf("remembers %v, want the one of this half hour", got)
	}
	for i := range 2 * keptEvictions {
		table.AddEviction(node, Eviction{Owner: types.UID(fmt.Sprint(i)), At: now.Add(-time.Duration(i) * time.Second)})
	}
	got := table.Evictions(node)
	if len(got) != keptEvictions || !got[keptEvictions-1].At.Equal(now) {
		t.Errorf("remembers %d, the last of %v", len(got), got[len(got)-1].At)
	}
	version := table.Versions.Pressure
	if table.AddEviction(node, got[3]); table.Versions.Pressure != version {
		t.Error("an eviction that is added again is a change")
	}
}

func TestEvictionsOfNodesThatAreGoneAreForgotten(t *testing.T) {
	table, now := New(), time.Unix(100_000, 0)
	table.SetNode(NewNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stays"}}))
	table.AddEviction(Intern("stays"), Eviction{Owner: "o", At: now})
	for i := range 10_000 {
		table.AddEviction(Intern(fmt.Sprint("n", i)), Eviction{Owner: "o", At: now.Add(time.Duration(i) * time.Minute)})
	}
	if len(table.evictions) > 4*keptEvictions || len(table.Evictions(Intern("stays"))) != 1 {
		t.Errorf("evictions of %d nodes are kept, %d of the node that exists", len(table.evictions), len(table.Evictions(Intern("stays"))))
	}
}

func FuzzNewHeadroom(f *testing.F) {
	f.Add(annotationOfN1)
	f.Fuzz(func(t *testing.T, annotation string) {
		if _, h, err := NewHeadroom(lease("evictd-n1", annotation)); (h == nil) == (err == nil) {
			t.Errorf("headroom %v, error %v", h, err)
		}
	})
}
