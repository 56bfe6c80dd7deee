package kubeclient_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
	"github.com/evictd/evictd/test/harness"
)

const file = `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443"}}],
contexts: [{name: c, context: {cluster: k, user: u}}],
users: [{name: u, user: {token: secret}}]}`

func TestServerIsFoundWhereTheFlagsSay(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(file), 0o600))
	for _, c := range []struct{ name, kubeconfig, server, host, token string }{
		{"of the file", kubeconfig, "", "https://10.0.0.1:6443", "secret"},
		{"of the URL, with the credentials of the file", kubeconfig, "https://10.0.0.2", "https://10.0.0.2", "secret"},
		{"of the URL alone", "", "http://127.0.0.1:8080", "http://127.0.0.1:8080", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := kubeclient.Config(c.kubeconfig, c.server)
			require.NoError(t, err)
			if cfg.Host != c.host || cfg.BearerToken != c.token || cfg.QPS >= 0 {
				t.Errorf("host %q, token %q, QPS %v; want %q, %q and no limit", cfg.Host, cfg.BearerToken, cfg.QPS, c.host, c.token)
			}
		})
	}
}

// rule: M.97
func TestATokenThatIsRefusedIsReadAgain(t *testing.T) {
	accepted := "first"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+accepted {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	token, kubeconfig := filepath.Join(dir, "token"), filepath.Join(dir, "config")
	write := func(file, text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(token, "first")
	write(kubeconfig, strings.NewReplacer("token: secret", "tokenFile: "+token, "https://10.0.0.1:6443", server.URL, "server:", "insecure-skip-tls-verify: true, server:").Replace(file))
	cfg, err := kubeclient.Config(kubeconfig, "")
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	request := func(want int) {
		t.Helper()
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("answer %s, want %d", response.Status, want)
		}
	}
	request(http.StatusOK)
	write(token, "second")
	request(http.StatusOK) // a token is read once a minute at most
	accepted = "second"
	request(http.StatusUnauthorized)
	request(http.StatusOK)
}

func TestEmbeddedAPIIsReachedOverItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"over ` + r.URL.Path + `"}}`))
	})}
	go server.Serve(listener)
	defer server.Close()
	cfg, err := kubeclient.Config("", "unix:"+path)
	require.NoError(t, err)
	cfg.ContentType = "application/json"
	node, err := kubernetes.NewForConfigOrDie(cfg).CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
	if err != nil || node.Name != "over /api/v1/nodes/n1" {
		t.Errorf("got %v, %v", node, err)
	}
}

func TestServerThatCannotBeMeantIsRefused(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ name, kubeconfig, server, want string }{
		{"none", "", "", "expected --kubeconfig FILE or --server URL"},
		{"socket by a relative path", "", "unix:api.sock", "absolute path"},
		{"socket with credentials", "/etc/kubeconfig", "unix:/run/api.sock", "takes no credentials"},
		{"no URL", "", "10.0.0.1:6443", "expected unix:PATH or a URL"},
		{"no file", "/does/not/exist", "", "--kubeconfig /does/not/exist: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := kubeclient.Config(c.kubeconfig, c.server); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

// TestASilentConnectionIsLeft has a gate swallow what is sent over the connections that are open, as a firewall does
// that has forgotten them. New connections pass.
func TestASilentConnectionIsLeft(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(*httptest.Server)
	}{
		{"HTTP/1, where each request has a connection", (*httptest.Server).Start},
		{"HTTP/2, where all requests have one", func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const requests = 100
			var together sync.WaitGroup // requests that were not received yet
			together.Add(requests)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/watch":
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				case "/together":
					together.Done()
					together.Wait()
				}
			}))
			c.start(server)
			gate := harness.NewGate(t, "tcp", "127.0.0.1:0", server.Listener.Addr().String())
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			kubeconfig := filepath.Join(t.TempDir(), "config")
			require.NoError(t, os.WriteFile(kubeconfig, []byte(strings.NewReplacer("server:", "insecure-skip-tls-verify: true, server:").Replace(file)), 0o600))
			cfg, err := kubeclient.Config(kubeconfig, strings.Replace(server.URL, server.Listener.Addr().String(), gate.Address, 1))
			require.NoError(t, err)
			client, err := rest.HTTPClientFor(cfg)
			require.NoError(t, err)
			get := func(path string, patience time.Duration) (*http.Response, error) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				t.Cleanup(cancel)
				request, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
				require.NoError(t, err)
				return client.Do(request)
			}
			watch, err := get("/watch", wait.Limit) // holds the connection
			require.NoError(t, err)
			defer watch.Body.Close()
			var sent sync.WaitGroup
			for range requests {
				sent.Go(func() {
					answer, err := get("/together", wait.Limit)
					if err != nil {
						t.Error(err)
						return
					}
					answer.Body.Close()
				})
			}
			sent.Wait()
			gate.Silence()
			const attempt = time.Second
			for begun := time.Now(); ; {
				answer, err := get("/", attempt)
				if err == nil {
					answer.Body.Close()
					break
				}
				if silent := time.Since(begun); silent > 30*time.Second { // client-go's own times: 45 s
					t.Fatalf("no request was answered for %v: %v", silent, err)
				}
			}
		})
	}
}

// TestConnectionsToTheEmbeddedAPIAreKept sends requests of which all are answered at the same time, twice.
func TestConnectionsToTheEmbeddedAPIAreKept(t *testing.T) {
	const requests = 100
	var opened atomic.Int64
	var all sync.WaitGroup // requests that were not received yet
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		all.Done()
		all.Wait()
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	cfg, err := kubeclient.Config("", server.URL)
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(cfg)
	require.NoError(t, err)
	for range 2 {
		all.Add(requests)
		var sent sync.WaitGroup
		for range requests {
			sent.Go(func() {
				response, err := client.Get(server.URL)
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			})
		}
		sent.Wait()
	}
	if n := opened.Load(); n > requests*3/2 {
		t.Errorf("%d connections were opened for %d requests at a time", n, requests)
	}
}
