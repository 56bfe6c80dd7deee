package oom_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/oom"
)

// rule: M.113
func TestAPodAsksForAnOOMGroup(t *testing.T) {
	for text, want := range map[string]string{"true": "1", "false": "0", "": "", "1": "", "True": ""} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{oom.GroupAnnotation: text}}}
		if got, err := oom.Group(pod); got != want || (err == nil) != (want != "") {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	if got, err := oom.Group(&v1.Pod{}); got != "" || err != nil {
		t.Errorf("a pod without the annotation asks for %q, %v", got, err)
	}
}
