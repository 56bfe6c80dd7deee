package scheduleradapter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/scheduleradapter/cycle"
	"github.com/evictd/evictd/scheduleradapter/whatif"
)

// whatIf asks a scheduler about a file.
func (s *scheduler) whatIf(file string, args ...string) (code int, out, errs string) {
	return execute(context.Background(), append([]string{"whatif", file, "--status-address", "unix:" + s.socket}, args...)...)
}

// answers decodes the answer about a document, once the scheduler knows the cluster.
func (c *liveCluster) answers(s *scheduler, document string, args ...string) (x cycle.WhatIf) {
	c.Helper()
	file := c.document(document)
	c.until("the scheduler answers", func() bool {
		code, out, errs := s.whatIf(file, append(args, "-o", "json")...)
		if code == 2 {
			c.Fatal(errs)
		}
		return code == 0 && json.Unmarshal([]byte(out), &x) == nil
	})
	return x
}

func (c *liveCluster) document(text string) string {
	c.Helper()
	file := filepath.Join(c.TempDir(), "question.yaml")
	require.NoError(c, os.WriteFile(file, []byte(text), 0o600))
	return file
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 8
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: system-cluster-critical
      containers: [{name: main, image: app, resources: {requests: {cpu: "1"}}}]
`

// The pods get the nodes that the scheduler said for them.
// rule: S8.60
// rule: S8.62
// rule: S8.66
func TestPodsOfADeploymentGetTheNodesOfTheAnswer(t *testing.T) {
	c := newLiveCluster(t)
	for _, name := range []string{"a", "b", "c"} {
		c.node(name)
	}
	s := c.runs("--leader-elect=false")
	c.pod("low")
	c.bound("low")
	attempts := func() string { return metricsOf(c, s, "scheduler_schedule_attempts_total") }
	var x cycle.WhatIf
	before := ""
	c.until("the answer has the pod", func() bool {
		before = attempts()
		x = c.answers(s, deployment)
		return x.Nominated == 1 && strings.HasSuffix(before, " 1\n")
	})
	if x.Scheduled != 5 || x.Unschedulable != 2 || x.Preempted != 1 || x.Pods[5].Victims[0] != "default/low" || x.Changed {
		t.Fatalf("the answer is %+v", x)
	}
	if after := attempts(); after != before {
		t.Errorf("metrics were\n%s\nand are\n%s", before, after)
	}
	if code, out, errs := s.whatIf(c.document(deployment)); code != 0 || errs != "" {
		t.Errorf("exit %d: %s", code, errs)
	} else {
		for _, part := range []string{"default/web: 6 of 8 pods fit, 1 of them after the eviction of 1 pods\n", "NODE  PODS  AFTER EVICTION", "default/low", "2 of 8 pods do not fit: 0/3 nodes are available: 3 Insufficient cpu.", "NodeResourcesFit"} {
			if !strings.Contains(out, part) {
				t.Errorf("%q is not in\n%s", part, out)
			}
		}
	}
	for i := range 5 {
		name := fmt.Sprint("web-", i+1)
		c.pod(name, func(p *v1.Pod) {
			p.Labels = map[string]string{"app": "web"}
			p.Spec.PriorityClassName = "system-cluster-critical"
		})
		c.bound(name)
		if node := c.get(name).Spec.NodeName; node != x.Pods[i].Node {
			t.Errorf("pod %s is on %s, the answer was %s", name, node, x.Pods[i].Node)
		}
	}
	low := c.get("low")
	if low.DeletionTimestamp != nil || len(must(c.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Preempted"}))(c).Items) > 0 {
		t.Error("the question had a victim")
	}
	c.pod("web-6", func(p *v1.Pod) {
		p.Labels = map[string]string{"app": "web"}
		p.Spec.PriorityClassName = "system-cluster-critical"
	})
	c.until("the victim is that of the answer", func() bool { return c.get("low").DeletionTimestamp != nil })
	c.until("the node is promised", func() bool { return c.get("web-6").Status.NominatedNodeName == x.Pods[5].Nominated })
}

// metricsOf are the lines of a metric.
func metricsOf(c *liveCluster, s *scheduler, name string) string {
	c.Helper()
	client := process.Client(s.socket)
	defer client.CloseIdleConnections()
	text := must(process.Get(c.Context(), client, "/metrics"))(c)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// rule: S8.67
func TestInvalidQuestionsAreRefused(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	s := c.runs("--leader-elect=false")
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: main}]}\n"
	if x := c.answers(s, pod); x.Scheduled != 1 {
		t.Fatalf("the answer is %+v", x)
	}
	post := func(query string, body io.Reader) (int, string) {
		client := process.Client(s.socket)
		defer client.CloseIdleConnections()
		r := must(client.Post("http://localhost/v1/whatif"+query, "application/yaml", body))(c)
		defer r.Body.Close()
		text := must(io.ReadAll(r.Body))(c)
		return r.StatusCode, string(text)
	}
	for _, fault := range []struct{ document, query, says string }{
		{"kind: Service\napiVersion: v1\n", "", "expected a Pod, Deployment"},
		{"", "", "expected a Pod, Deployment"},
		{"{", "", "yaml"},
		{pod + "---\n" + pod, "", "document 2: a second Pod"},
		{strings.Replace(pod, "name: main", "names: main", 1), "", `unknown field "spec.containers[0].names"`},
		{strings.Replace(pod, "name: main", "name: main, resources: {requests: {cpu: -1}}", 1), "", "must be greater than or equal to 0"},
		{strings.Replace(pod, "[{name: main}]", "[]", 1), "", "spec.containers: Required value"},
		{strings.Replace(pod, "spec: {", "spec: {schedulerName: other, ", 1), "", `no profile of this scheduler is named "other"`},
		{strings.Replace(pod, "spec: {", "spec: {priorityClassName: unknown, ", 1), "", `spec.priorityClassName: Invalid value: "unknown": no running pod has this PriorityClass: add it to the file`},
		{strings.Replace(pod, "name: p", "name: p, labels: {a b: c}", 1), "", `metadata.labels: Invalid value: "a b"`},
		{strings.Replace(pod, "spec: {", "spec: {nodeSelector: {a b: c}, ", 1), "", `spec.nodeSelector: Invalid value: "a b"`},
		{pod, "count=0", "expected 1 to 10000"},
		{pod, "count=10001", "expected 1 to 10000"},
		{pod, "count=many", "expected a number"},
	} {
		if code, text := post("?"+fault.query, strings.NewReader(fault.document)); code != http.StatusBadRequest || !strings.Contains(text, fault.says) {
			t.Errorf("%q with %q: %d %s", fault.document, fault.query, code, text)
		}
		if fault.query == "" {
			if code, _, errs := s.whatIf(c.document(fault.document)); code != 2 || !strings.Contains(errs, fault.says) {
				t.Errorf("%q: exit %d, %s", fault.document, code, errs)
			}
		}
	}
	if code, text := post("", bytes.NewReader(make([]byte, whatif.MaxBody+1))); code != http.StatusRequestEntityTooLarge || !strings.Contains(text, "at most 1048576 bytes") {
		t.Errorf("a large body: %d %s", code, text)
	}
	if code, _, errs := s.whatIf(c.document(pod), "--count", "-1"); code != 2 || !strings.Contains(errs, "expected 1 to 10000") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs := s.whatIf(filepath.Join(t.TempDir(), "absent")); code != 2 || !strings.Contains(errs, "no such file") {
		t.Errorf("exit %d: %s", code, errs)
	}
	var stdout, stderr wait.Log
	root := NewCommand("v1.2.3")
	root.SetIn(strings.NewReader(pod))
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	if code := Execute(t.Context(), root, []string{"whatif", "-", "--count", "3", "--status-address", "unix:" + s.socket}); code != 0 || !strings.HasPrefix(stdout.String(), "default/p: 3 of 3 pods fit\n") {
		t.Errorf("exit %d: %s%s", code, stdout.String(), stderr.String())
	}
}

// rule: S8.66
// rule: S8.68
func TestATemplateIsCompletedAndTheRestIsLeftOut(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	s := c.runs("--leader-elect=false")
	x := c.answers(s, `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: kube-system}
spec:
  replicas: 4
  template:
    spec:
      priorityClassName: important
      runtimeClassName: sandbox
      nodeName: b
      schedulingGates: [{name: quota}]
      schedulingGroup: {podGroupName: workers}
      resourceClaims: [{name: device, resourceClaimTemplateName: gpu}]
      volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]
      containers: [{name: main, image: app, resources: {limits: {cpu: "1"}, claims: [{name: device}]}}]
  volumeClaimTemplates: [{metadata: {name: data}}]
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: important}
value: 10
`)
	want := []string{
		"the claim of volumeClaimTemplate data", "the node b of spec.nodeName", "the scheduling gates", "the PodGroup: the pods are tried one by one", "the claim of the ephemeral volume scratch",
		"the claim of ResourceClaimTemplate gpu", "the overhead and the nodes of RuntimeClass sandbox",
	}
	if x.Pod != "kube-system/db" || x.Scheduled != 2 || x.Unschedulable != 2 || !slices.Equal(x.LeftOut, want) {
		t.Errorf("the answer is %+v", x)
	}
	x = c.answers(s, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"sum"},"spec":{"parallelism":9,"completions":3,"template":{"spec":{"runtimeClassName":"sandbox","containers":[{"name":"main"}]}}}}
{"apiVersion":"node.k8s.io/v1","kind":"RuntimeClass","metadata":{"name":"sandbox"},"handler":"sandbox","overhead":{"podFixed":{"cpu":"1"}}}`)
	if x.Count != 3 || x.Scheduled != 2 || len(x.LeftOut) > 0 {
		t.Errorf("the answer is %+v", x)
	}
}

// rule: S8.62
func TestAVolumeIsFreeAfterAWhatIf(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	size, once := c.localVolume()
	for _, name := range []string{"c", "d"} {
		must(c.CoreV1().PersistentVolumeClaims("default").Create(t.Context(), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: once, StorageClassName: new("local"), Resources: v1.VolumeResourceRequirements{Requests: size},
		}}, metav1.CreateOptions{}))(c)
	}
	s := c.runs("--leader-elect=false")
	using := func(claim string) string {
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: main}], volumes: [{name: v, persistentVolumeClaim: {claimName: %s}}]}}", claim)
	}
	for _, claim := range []string{"c", "d", "c"} { // each finds the one volume
		if x := c.answers(s, using(claim), "--count", "2"); x.Scheduled != 2 {
			t.Errorf("the answer for claim %s is %+v", claim, x)
		}
	}
	if ref := must(c.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}))(c).Spec.ClaimRef; ref != nil {
		t.Errorf("the volume is for %s", ref.Name)
	}
	c.pod("p", func(p *v1.Pod) {
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}}}
	})
	c.until("the volume is for the claim", func() bool {
		ref := must(c.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{}))(c).Spec.ClaimRef
		return ref != nil && ref.Name == "d"
	})
	claim := must(c.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "d", metav1.GetOptions{}))(c)
	claim.Spec.VolumeName, claim.Annotations = "v", map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
	must(c.CoreV1().PersistentVolumeClaims("default").Update(t.Context(), claim, metav1.UpdateOptions{}))(c)
	c.bound("p")
}

// Pods of an old revision are no pods of the new one, and the workloads of a file are tried beside each other.
// rule: S8.55
// rule: S8.57
func TestWorkloadsOfAFileAreTriedTogether(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	c.node("b")
	for _, name := range []string{"old-1", "old-2"} {
		c.pod(name, func(p *v1.Pod) {
			p.Labels = map[string]string{"app": "web", "pod-template-hash": "old"}
			p.Spec.NodeName, p.Spec.Containers[0].Resources = "a", v1.ResourceRequirements{}
		})
	}
	s := c.runs("--leader-elect=false")
	const spread = "topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}, matchLabelKeys: [KEY]}], "
	x := c.answers(s, strings.ReplaceAll(`apiVersion: v1
kind: List
items:
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 2, template: {metadata: {labels: {app: web}}, spec: {`+strings.Replace(spread, "KEY", "pod-template-hash", 1)+`containers: [{name: main}]}}}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: web}}
- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: log}, spec: {template: {metadata: {labels: {app: log}}, spec: {containers: [{name: main, resources: {requests: {cpu: 1500m}}}]}}}}
- {apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {schedulerName: other, containers: [{name: main}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: log-x, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: log, uid: u, controller: true}]}, spec: {containers: [{name: main}]}}
- {apiVersion: apps/v1, kind: StatefulSet, metadata: {name: db}, spec: {replicas: 3, template: {metadata: {labels: {app: db}}, spec: {`+strings.NewReplacer("KEY", "apps.kubernetes.io/pod-index", "app: web", "app: db", "DoNotSchedule", "ScheduleAnyway").Replace(spread)+`containers: [{name: main, resources: {requests: {cpu: 500m}}}]}}}}
`, "\t", ""))
	if x.Pod != "default/web" || x.Scheduled != 2 || len(x.Nodes) != 2 || len(x.Further) != 2 {
		t.Fatalf("the answer is %+v", x)
	}
	want := []string{"1 ConfigMap of v1", `Pod default/other: spec.schedulerName: no profile of this scheduler is named "other"`}
	if !slices.Equal(x.LeftOut, want) {
		t.Errorf("left out is %q, want %q", x.LeftOut, want)
	}
	if log := x.Further[0]; log.Pod != "default/log" || log.Count != 2 || log.Scheduled != 2 || len(log.Nodes) != 2 {
		t.Errorf("the answer for the DaemonSet is %+v", log)
	}
	if db := x.Further[1]; db.Pod != "default/db" || db.Count != 3 || db.Scheduled != 2 || db.Unschedulable != 1 || !strings.Contains(db.Message, "Insufficient cpu") {
		t.Errorf("the answer for the StatefulSet is %+v", db)
	}
}

// Objects of another cluster, or of another version, are asked about as they are stored.
// rule: S8.53
func TestStoredObjectsAreAskedAboutAsTheyAre(t *testing.T) {
	c := newLiveCluster(t)
	c.node("a")
	s := c.runs("--leader-elect=false")
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: p, uid: u-1}, spec: {priorityClassName: changed, priority: 7, runtimeClassName: changed, overhead: {cpu: "1"}, colour: red, containers: [{name: main, resources: {requests: {cpu: "1"}}}]}}`
	x := c.answers(s, pod+"\n---\n"+pod+`
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: changed, uid: u-2}, value: 8, colour: red}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: changed, uid: u-3}, handler: h, overhead: {podFixed: {cpu: "9"}}}
`)
	want := []string{`1 unknown field "colour" of PriorityClass`, `2 unknown field "spec.colour" of Pod`}
	if x.Scheduled != 1 || x.Count != 1 || len(x.Further) > 0 || !slices.Equal(x.LeftOut, want) {
		t.Errorf("the answer is %+v", x)
	}
}
