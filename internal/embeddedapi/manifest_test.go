package embeddedapi_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/require"
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

// write makes a file appear whole.
func write(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	whole := filepath.Join(t.TempDir(), "whole")
	require.NoError(t, os.WriteFile(whole, []byte(text), 0o644))
	require.NoError(t, os.Rename(whole, path))
}

func read(t *testing.T, path string) string {
	t.Helper()
	text := require.ReadFile(t, path)
	return string(text)
}

// written is a manifest once it has a text.
func written(t *testing.T, path, part string) (text string) {
	t.Helper()
	eventually(t, path+" with "+part, func() bool {
		found, err := os.ReadFile(path)
		text = string(found)
		return err == nil && strings.Contains(text, part)
	})
	return text
}

// current is the manifest of an object once it has the object's version.
func (s *server) current(t *testing.T, object, path string) string {
	t.Helper()
	metadata := s.call(t, "GET", object, "").object["metadata"].(map[string]any)
	return written(t, path, `resourceVersion: "`+metadata["resourceVersion"].(string)+`"`)
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
	text := written(t, path, "\n  uid: ")
	if !strings.Contains(text, "schedulerName: default-scheduler") {
		t.Errorf("the manifest is not what was admitted:\n%s", text)
	}
	write(t, path, strings.Replace(text, "app:1", "app:2", 1))
	eventually(t, "the change", func() bool {
		p, err := pods.Get(t.Context(), "dropped", metav1.GetOptions{})
		return err == nil && p.Spec.Containers[0].Image == "app:2"
	})
	require.NoError(t, os.Remove(path))
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

func TestBadManifestIsLoggedOnceAndLeftAlone(t *testing.T) {
	named := func(name string) string { return strings.Replace(manifestText, "dropped", name, 1) }
	faults := []struct{ path, text, want string }{
		{"pods/default/no-yaml.yaml", "kind: [", "yaml"},
		{"pods/default/empty.yaml", "", "expected one document of kind Pod, found 0"},
		{"pods/default/another-kind.yaml", "apiVersion: v1\nkind: Node\n", "expected apiVersion v1 and kind Pod"},
		{"pods/default/unknown-field.yaml", strings.Replace(named("unknown-field"), "image", "imaje", 1), "imaje"},
		{"pods/default/another-name.yaml", named("bad"), "it names default/bad"},
		{"pods/no-namespace.yaml", named("no-namespace"), "expected the file pods/NAMESPACE/NAME.yaml"},
		{"pods/none/bad.yaml", named("bad"), "namespaces \\\"none\\\" not found"},
		{"pods/default/refused.yaml", "apiVersion: v1\nkind: Pod\nspec: {}\n", "spec.containers"},
	}
	s := serve(t, "")
	logged := func(path string) (lines []string) {
		for line := range strings.Lines(s.log.String()) {
			if strings.Contains(line, "manifest not taken") && strings.Contains(line, path) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	for _, c := range faults {
		write(t, s.path(c.path), c.text)
	}
	for _, c := range faults {
		eventually(t, "a line in the log of "+c.path, func() bool { return len(logged(c.path)) > 0 })
	}
	write(t, s.path("pods", "default", "dropped.yaml"), manifestText)
	eventually(t, "the pod of a good manifest", func() bool {
		_, err := s.client(t).CoreV1().Pods("default").Get(t.Context(), "dropped", metav1.GetOptions{})
		return err == nil
	})
	for _, c := range faults {
		if lines := logged(c.path); len(lines) != 1 || !strings.Contains(lines[0], c.want) {
			t.Errorf("%s: logged %q, want one line with %q", c.path, lines, c.want)
		}
		if got := read(t, s.path(c.path)); got != c.text {
			t.Errorf("%s was changed to %q", c.path, got)
		}
	}
}

// TestDataOfThePreviousVersionIsServed holds that the directory of a version that set fewer
// defaults is served: the same objects under the same versions, with all defaults, as a kubelet and
// kube-controller-manager expect them, and that they can be changed.
func TestDataOfThePreviousVersionIsServed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/previous")))
	s := serve(t, dir)
	client := s.client(t)
	p := must[*v1.Pod](t)(client.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{}))
	stored := read(t, "testdata/previous/pods/default/web.yaml")
	if !strings.Contains(stored, string(p.UID)) || !strings.Contains(stored, `resourceVersion: "`+p.ResourceVersion+`"`) || p.Spec.NodeName != "n1" {
		t.Errorf("another pod: %+v", p.ObjectMeta)
	}
	if c := p.Spec.Containers[0]; p.Spec.EnableServiceLinks == nil || p.Spec.SecurityContext == nil || c.ImagePullPolicy == "" || c.TerminationMessagePath == "" {
		t.Errorf("a kubelet cannot start it: %+v", p.Spec)
	}
	set := must[*appsv1.DaemonSet](t)(client.AppsV1().DaemonSets("default").Get(t.Context(), "agent", metav1.GetOptions{}))
	if set.Spec.UpdateStrategy.RollingUpdate == nil || set.Spec.Template.Spec.RestartPolicy != v1.RestartPolicyAlways {
		t.Errorf("a controller cannot roll it out: %+v", set.Spec)
	}
	for _, path := range []string{podPath[:len(podPath)-1] + "web/status", "/api/v1/nodes/n1/status", "/apis/apps/v1/namespaces/default/daemonsets/agent", budgetPath + "/web", "/api/v1/namespaces/default/services/web"} {
		if got := s.call(t, "PATCH", path, `{"metadata":{"annotations":{"a":"b"}}}`, "Content-Type", merge); got.code != 200 {
			t.Errorf("patch %s: %s", path, got.body)
		}
	}
	if strings.Contains(s.log.String(), "not taken") {
		t.Error(s.log.String())
	}
}
