package embeddedapi_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/embeddedapi"
	"github.com/evictd/evictd/internal/kubeclient"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/wait"
)

// server is an API that runs for one test, on a socket and on loopback.
type server struct {
	dir, url string
	config   *rest.Config
	log      wait.Log
	stop     func()
}

// serve starts an API on a directory, a new one where it is empty.
func serve(t testing.TB, dir string) *server {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	s := &server{dir: dir}
	api, err := embeddedapi.New(embeddedapi.Config{Data: dir, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
	require.NoError(t, err)
	sockets, err := os.MkdirTemp("", "embeddedapi")
	require.NoError(t, err)
	socket := filepath.Join(sockets, "api.sock")
	var serving sync.WaitGroup
	web := &http.Server{Handler: api}
	for _, at := range [][2]string{{"unix", socket}, {"tcp", "127.0.0.1:0"}} {
		l, err := net.Listen(at[0], at[1])
		require.NoError(t, err)
		s.url = "http://" + l.Addr().String()
		serving.Go(func() { web.Serve(l) })
	}
	stopAPI := require.Running(t, api.Run)
	s.stop = sync.OnceFunc(func() {
		stopAPI()
		if err := web.Shutdown(t.Context()); err != nil {
			web.Close()
		}
		serving.Wait()
		if err := api.Close(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(sockets)
	})
	t.Cleanup(s.stop)
	if s.config, err = kubeclient.Config("", "unix:"+socket); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *server) client(t testing.TB) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(s.config)
	require.NoError(t, err)
	return client
}

// answer is what came back for a raw request.
type answer struct {
	code   int
	header http.Header
	body   string
	object map[string]any
}

// call sends a raw request; headers come as name and value in turn.
func (s *server) call(t testing.TB, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	response, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	a := answer{code: response.StatusCode, header: response.Header, body: string(text)}
	json.Unmarshal(text, &a.object) // what is no JSON stays text
	return a
}

var eventually = wait.Until

func node(name string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity:   v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110")},
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		}}
}

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "app:1", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("64Mi")}}}}}}
}

func bindTo(name string) *v1.Binding {
	return &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Target: v1.ObjectReference{Kind: "Node", Name: "n1"}}
}
