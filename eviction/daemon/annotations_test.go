package daemon

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/time/rate"

	"github.com/evictd/evictd/eviction"
	"github.com/evictd/evictd/eviction/control"
	"github.com/evictd/evictd/internal/wire"
)

type countedReports map[string]int

func (c countedReports) AnnotationIgnored(pod wire.PodName, _ string) { c[pod.Namespace]++ }

// TestAnnotationsThatChangeAllTheTimeHaveAShareOfTheEvents has one pod of a tenant change its annotation, and pods of the
// tenant come and go, beside another tenant's mistake.
func TestAnnotationsThatChangeAllTheTimeHaveAShareOfTheEvents(t *testing.T) {
	reports := countedReports{}
	a := &annotations{reports: reports, reported: map[types.UID]map[string]bool{}, share: map[string]*rate.Limiter{}}
	pod := func(namespace string, uid, text string) *trackedPod {
		m := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: types.UID(uid), Annotations: map[string]string{eviction.NotifyAnnotation: text}}}
		return &trackedPod{Pod: control.Pod{Pod: eviction.Digest(m)}, manifest: m}
	}
	for i := range 5000 {
		a.follow([]*trackedPod{pod("noisy", "one", fmt.Sprint("SIGNAL", i)), pod("noisy", fmt.Sprint(i), "SIGNAL"), pod("calm", "mistaken", "SIGKILL")})
		if n := len(a.reported); n > 3 {
			t.Fatalf("%d pods are remembered", n)
		}
	}
	if reports["noisy"] < reportBurst || reports["noisy"] > reportBurst+2 || reports["calm"] != 1 {
		t.Errorf("reports: %v", reports)
	}
}
