package suite_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// secure is the secure port of a running evictd-scheduler.
type secure struct {
	t       testing.TB
	address string
}

// staticPod starts evictd-scheduler with the command of kubeadm's manifest of
// kube-scheduler. Only the port and the status address are other ones, as a host has many
// tests.
func (a *api) staticPod() (*harness.Process, *secure) {
	a.t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(a.t, err)
	address := free.Addr().String()
	require.NoError(a.t, free.Close())
	_, port, err := net.SplitHostPort(address)
	require.NoError(a.t, err)
	kubeconfig, socket := a.Kubeconfig(apiserver.Kube), filepath.Join(harness.Dir(a.t), "status.sock")
	p := harness.Serve(a.t, socket, exec.Command(harness.Program(a.t, "evictd-scheduler"),
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--bind-address=127.0.0.1",
		"--kubeconfig="+kubeconfig, "--leader-elect=true", "--secure-port="+port, sandbox.StatusAddress("unix:"+socket)))
	return p, &secure{a.t, "https://" + address}
}

// get sends a request with the credentials of a configuration; nil: with none.
func (s *secure) get(path string, as *rest.Config) (code int, body string) {
	s.t.Helper()
	config := &rest.Config{}
	if as != nil {
		config = rest.CopyConfig(as)
	}
	config.CAData, config.CAFile, config.Insecure = nil, "", true // a self-signed certificate
	client, err := rest.HTTPClientFor(config)
	require.NoError(s.t, err)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.address+path, nil)
	require.NoError(s.t, err)
	response, err := client.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	return response.StatusCode, string(text)
}

// await waits for an answer with the code and the text.
func (s *secure) await(path string, as *rest.Config, code int, text string) {
	s.t.Helper()
	await(s.t, path+" to answer "+http.StatusText(code)+" with "+text, func() bool {
		got, body := s.get(path, as)
		return got == code && strings.Contains(body, text)
	})
}

// tokenOf is the configuration of a client with a token of a new service account.
func (a *api) tokenOf(name string) *rest.Config {
	a.t.Helper()
	accounts := a.admin.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(a.t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = accounts.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	token, err := accounts.CreateToken(a.t.Context(), name, &authentication.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(a.t, err)
	return &rest.Config{BearerToken: token.Status.Token}
}

// monitor grants a service account what the ClusterRole system:monitoring has.
func (a *api) monitor(name string) {
	a.t.Helper()
	bindings := a.admin.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(a.t.Context(), &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "system:monitoring"},
		Subjects:   []rbac.Subject{{Kind: rbac.ServiceAccountKind, Name: name, Namespace: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = bindings.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// rule: S8.30
func TestTheStaticPodOfKubeSchedulerRunsEvictdScheduler(t *testing.T) {
	a := onKubeAPIServer(t)
	_, port := a.staticPod()
	for _, probe := range []string{"/livez", "/readyz", "/healthz"} {
		port.await(probe, nil, http.StatusOK, "ok")
	}
	a.createNodes(node("n1"))
	a.createPods(pod("p", "1"))
	if at := a.awaitBound("p"); at != "n1" {
		t.Errorf("the pod is bound to %s", at)
	}
}

// rule: S8.31
// rule: S8.32
func TestTheSecurePortAnswersClientsWithRights(t *testing.T) {
	a := onKubeAPIServer(t)
	_, port := a.staticPod()
	reader, unauthorized := a.tokenOf("reader"), a.tokenOf("unauthorized")
	a.monitor("reader")
	administrator, err := a.Config(apiserver.Admin)
	require.NoError(t, err)
	kubelet, err := a.Config(apiserver.Node)
	require.NoError(t, err)

	port.await("/metrics", nil, http.StatusForbidden, `User \"system:anonymous\" cannot get path \"/metrics\"`)
	port.await("/metrics", unauthorized, http.StatusForbidden, `system:serviceaccount:default:unauthorized`)
	port.await("/metrics", kubelet, http.StatusForbidden, "system:node:"+apiserver.NodeName)
	port.await("/metrics", &rest.Config{BearerToken: "invalid"}, http.StatusUnauthorized, "Unauthorized")
	port.await("/metrics", reader, http.StatusOK, "scheduler_pending_pods")
	port.await("/livez", nil, http.StatusOK, "ok")
	port.await("/metrics/slis", reader, http.StatusOK, `kubernetes_healthcheck{name="ping",type="livez"} 1`)
	port.await("/configz", reader, http.StatusForbidden, "cannot get path")
	for path, text := range map[string]string{
		"/configz": `"kind":"KubeSchedulerConfiguration"`,
		"/statusz": "Go version: go",
		"/flagz":   "leader-elect=true",
	} {
		port.await(path, administrator, http.StatusOK, text)
		port.await(path, nil, http.StatusForbidden, "cannot get path")
	}
	port.await("/debug/pprof/", administrator, http.StatusNotFound, "not found")
}
