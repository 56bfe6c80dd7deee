package localapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const manifestText = `apiVersion: v1
kind: Pod
metadata:
  name: dropped
spec:
  containers:
  - name: main
    image: app:1
`

func (s *server) path(parts ...string) string {
	return filepath.Join(append([]string{s.dir}, parts...)...)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManifestDroppedIntoTheDirectoryBecomesAPod(t *testing.T) {
	s := serve(t, "")
	path := s.path("pods", "default", "dropped.yaml")
	write(t, path, manifestText)
	pods := s.client(t).CoreV1().Pods("default")
	var p *v1.Pod
	eventually(t, "the pod", func() (there bool) {
		var err error
		p, err = pods.Get(t.Context(), "dropped", metav1.GetOptions{})
		return err == nil
	})
	if p.UID == "" || p.Spec.SchedulerName != v1.DefaultSchedulerName || p.Status.QOSClass != v1.PodQOSBestEffort || len(p.Spec.Tolerations) != 2 {
		t.Errorf("not admitted: %+v", p)
	}
	if text := read(t, path); !strings.Contains(text, "\n  uid: ") || !strings.Contains(text, "schedulerName: default-scheduler") {
		t.Errorf("the manifest is not what was admitted:\n%s", text)
	}
	write(t, path, strings.Replace(read(t, path), "app:1", "app:2", 1))
	eventually(t, "the change", func() bool {
		p, err := pods.Get(t.Context(), "dropped", metav1.GetOptions{})
		return err == nil && p.Spec.Containers[0].Image == "app:2"
	})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its end", func() bool {
		_, err := pods.Get(t.Context(), "dropped", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestManifestsWrittenWhileTheServerWasDownAreTaken(t *testing.T) {
	s := serve(t, "")
	s.stop()
	write(t, s.path("pods", "default", "dropped.yaml"), strings.Replace(manifestText, "spec:", "spec:\n  priorityClassName: high", 1))
	write(t, s.path("priorityclasses", "high.yaml"), "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 1000\n")
	p, err := serve(t, s.dir).client(t).CoreV1().Pods("default").Get(t.Context(), "dropped", metav1.GetOptions{})
	if err != nil || *p.Spec.Priority != 1000 {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestBadManifestIsToldOfOnceAndLeftAlone(t *testing.T) {
	for _, c := range []struct{ name, path, text, want string }{
		{"no YAML", "pods/default/bad.yaml", "kind: [", "yaml"},
		{"empty", "pods/default/bad.yaml", "", "expected apiVersion v1 and kind Pod"},
		{"another kind", "pods/default/bad.yaml", "apiVersion: v1\nkind: Node\n", "expected apiVersion v1 and kind Pod"},
		{"unknown field", "pods/default/bad.yaml", strings.Replace(strings.Replace(manifestText, "dropped", "bad", 1), "image", "imaje", 1), "imaje"},
		{"another name", "pods/default/bad.yaml", manifestText, "it names default/dropped"},
		{"no namespace", "pods/bad.yaml", manifestText, "expected the file pods/NAMESPACE/NAME.yaml"},
		{"unknown namespace", "pods/none/bad.yaml", strings.Replace(manifestText, "dropped", "bad", 1), "namespaces \\\"none\\\" not found"},
		{"refused", "pods/default/bad.yaml", "apiVersion: v1\nkind: Pod\nspec: {}\n", "spec.containers"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, "")
			path := s.path(strings.Split(c.path, "/")...)
			write(t, path, c.text)
			told := func() int { return strings.Count(s.log.String(), "manifest not taken") }
			eventually(t, "a line in the log", func() bool { return told() > 0 })
			write(t, s.path("pods", "default", "dropped.yaml"), manifestText) // whoever comes later is served
			eventually(t, "the good one", func() bool {
				_, err := s.client(t).CoreV1().Pods("default").Get(t.Context(), "dropped", metav1.GetOptions{})
				return err == nil
			})
			if log := s.log.String(); told() != 1 || !strings.Contains(log, c.want) || !strings.Contains(log, path) {
				t.Errorf("log: %s", log)
			}
			if got := read(t, path); got != c.text {
				t.Errorf("the file was changed to %q", got)
			}
		})
	}
}
