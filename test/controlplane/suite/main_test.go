// Package suite_test runs evictd's programs, and requests made by hand, against two API
// servers: a real kube-apiserver and the embedded API. A test is the same for both.
package suite_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/test/controlplane/apiserver"
	"github.com/evictd/evictd/test/harness"
)

// servers are started by the first test that needs them, shared by all, and killed with
// the process of the tests.
var servers = []struct {
	name string
	get  func(t testing.TB) (*apiserver.Server, error)
}{
	{"kube-apiserver", shared(func(testing.TB) (*apiserver.Server, error) { return apiserver.NewKubeAPIServer() })},
	{"embedded", shared(embedded)},
}

func embedded(t testing.TB) (*apiserver.Server, error) {
	return apiserver.NewEmbedded(harness.Program(t, "evictd-apiserver"))
}

// shared starts a server once.
func shared(start func(testing.TB) (*apiserver.Server, error)) func(testing.TB) (*apiserver.Server, error) {
	var once sync.Once
	var server *apiserver.Server
	var err error
	return func(t testing.TB) (*apiserver.Server, error) {
		once.Do(func() { server, err = start(t) })
		return server, err
	}
}

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// api is an API server without nodes, pods and what goes with them.
type api struct {
	*apiserver.Server
	t     testing.TB
	admin kubernetes.Interface
}

// each runs a test against every server, one after the other.
func each(t *testing.T, test func(t *testing.T, a *api)) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) { test(t, open(t, s.get)) })
	}
}

// onKubeAPIServer runs a test of what only a kube-apiserver knows.
func onKubeAPIServer(t *testing.T) *api { return open(t, servers[0].get) }

// open is the server, empty, and empty again after the test.
func open(t *testing.T, get func(testing.TB) (*apiserver.Server, error)) *api {
	a := &api{Server: started(t, get), t: t}
	var err error
	if a.admin, err = a.Client(apiserver.Admin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.empty)
	return a
}

// started is a server; the test is skipped where it cannot be had.
func started(t *testing.T, get func(testing.TB) (*apiserver.Server, error)) *apiserver.Server {
	server, err := get(t)
	if unavailable := (*apiserver.UnavailableError)(nil); errors.As(err, &unavailable) {
		t.Skip("skipped:", unavailable)
	}
	require.NoError(t, err)
	return server
}

var await = harness.Await
