package embeddedapi_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evictd/evictd/internal/require"
)

// kubectls are those that can be run here: the one built for the integration
// tests, and one that is installed.
func kubectls(t *testing.T) (paths []string) {
	built, err := filepath.Abs("../../test/controlplane/bin/kubectl")
	require.NoError(t, err)
	if _, err := os.Stat(built); err == nil {
		paths = append(paths, built)
	}
	if installed, err := exec.LookPath("kubectl"); err == nil {
		paths = append(paths, installed)
	}
	if len(paths) == 0 {
		t.Skip("there is no kubectl: install kubernetes-client, or build test/controlplane")
	}
	return paths
}

// operator runs kubectl as an operator would.
type operator struct {
	t         *testing.T
	path, url string
	home      string
}

func (o operator) run(input string, args ...string) (string, error) {
	o.t.Helper()
	c := exec.CommandContext(o.t.Context(), o.path, append([]string{"--server", o.url, "--cache-dir", o.home}, args...)...)
	c.Env = append(os.Environ(), "KUBECONFIG=/dev/null", "HOME="+o.home)
	c.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.String(), err
}

// expect runs kubectl and wants its output to match.
func (o operator) expect(pattern, input string, args ...string) {
	o.t.Helper()
	out, err := o.run(input, args...)
	if err != nil || !regexp.MustCompile(pattern).MatchString(out) {
		o.t.Errorf("kubectl %s: %v, want a match of %q:\n%s", strings.Join(args, " "), err, pattern, out)
	}
}

const cluster = `apiVersion: v1
kind: Node
metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
  addresses: [{type: InternalIP, address: 10.0.0.1}]
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web}
spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: app}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: "app:1", resources: {requests: {memory: 64Mi}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
`

func TestKubectlDoesAnOperatorsWork(t *testing.T) {
	for _, path := range kubectls(t) {
		t.Run(path, func(t *testing.T) {
			s := serve(t, "")
			o := operator{t, path, s.url, t.TempDir()}
			o.expect(`Server Version: .*v?1\.?37|Minor:"37"`, "", "version")
			o.expect(`pod/web created\n.*budget.* created`, cluster, "apply", "-f", "-")
			o.expect(`pod/web unchanged`, cluster, "apply", "-f", "-")
			o.expect(`pod/web configured`, strings.Replace(cluster, "app:1", "app:2", 1), "apply", "-f", "-")
			if out, err := o.run(strings.Replace(cluster, "image: \"app:1\"", "imaje: a", 1), "apply", "-f", "-"); err == nil || !strings.Contains(out, "imaje") {
				t.Errorf("apply of an unknown field: %v\n%s", err, out)
			}
			o.expect(`NAME +STATUS +ROLES +AGE +VERSION +INTERNAL-IP.*\n(node/)?n1 +Ready +<none> +\S+ +10\.0\.0\.1 `, "", "get", "nodes", "-o", "wide")
			require.NoError(t, s.client(t).CoreV1().Pods("default").Bind(t.Context(), bindTo("web"), createOptions))
			o.expect(`(?s)node/n1 +Ready.*NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES\npod/web +0/1 +Pending +0 +\S+ +<none> +n1 `, "", "get", "nodes,pods", "-o", "wide")
			o.expect(`web +1 +N/A +0 `, "", "get", "pdb")
			o.expect(`web +1 +0 +0 `, "", "get", "rs", "-A")
			o.expect(`system-node-critical +2000001000 +false`, "", "get", "pc")
			o.expect(`app:2`, "", "get", "pod", "web", "-o", "yaml")
			o.expect(`(?s)Node: +n1.*QoS Class: +Burstable`, "", "describe", "pod", "web")
			o.expect(`(?s)Name: +n1.*Allocatable:.*memory: +8Gi.*default +web +`, "", "describe", "node", "n1")
			o.expect(`n1 labeled`, "", "label", "node", "n1", "zone=a")
			o.expect(`n1`, "", "get", "nodes", "-l", "zone=a", "-o", "name")
			o.expect(`n1 annotated`, "", "annotate", "node", "n1", "note=x")
			o.expect(`n1 tainted`, "", "taint", "node", "n1", "dedicated=x:NoSchedule")
			o.expect(`n1 untainted`, "", "taint", "node", "n1", "dedicated-")
			o.expect(`n1 cordoned`, "", "cordon", "n1")
			o.expect(`SchedulingDisabled`, "", "get", "node", "n1")
			o.expect(`n1 uncordoned`, "", "uncordon", "n1")
			o.expect(`(?s)KIND: +Pod.*tolerations.*The pod this Toleration`, "", "explain", "pod.spec.tolerations")
			o.expect(`(?s)KIND: +PodDisruptionBudget.*minAvailable`, "", "explain", "pdb.spec")
			o.expect(`pods +po +v1 +true +Pod`, "", "api-resources")
			o.expect(`web patched`, "", "patch", "pod", "web", "-p", `{"metadata":{"labels":{"a":"b"}}}`)
			o.expect(`(?s)evicting pod default/web.*n1 (drained|evicted)`, "", "drain", "n1", "--force", "--grace-period=0", "--ignore-daemonsets")
			o.expect(`No resources found`, "", "get", "pods")
			o.expect(`"n1" deleted`, "", "delete", "node", "n1")
		})
	}
}
