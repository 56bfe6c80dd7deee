// Package suite_test runs evictd's programs, and requests made by hand, against
// two API servers: a real kube-apiserver and the embedded API. A test is the
// same for both; what must hold on one must hold on the other.
package suite_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/evictd/evictd/test/controlplane/harness"
)

// programs is where TestMain built evictd's programs.
var programs string

// servers are started by the first test that needs them and shared by all.
var servers = []struct {
	name string
	get  func() (*harness.Server, error)
}{
	{"kube-apiserver", sync.OnceValues(func() (*harness.Server, error) { return harness.NewKubeAPIServer() })},
	{"embedded", sync.OnceValues(func() (*harness.Server, error) { return harness.NewEmbedded(program("evictd-apiserver")) })},
}

func program(name string) string { return filepath.Join(programs, name) }

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "evictd-programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if err := errors.Join(os.Chmod(dir, 0o755), harness.Build(dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	for _, s := range servers {
		// One that no test needed ends as soon as it is there.
		if server, err := s.get(); err == nil {
			if err := server.Stop(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
	}
	return code
}

// api is an API server without nodes, pods and what goes with them.
type api struct {
	*harness.Server
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
func open(t *testing.T, get func() (*harness.Server, error)) *api {
	server, err := get()
	if unavailable := (*harness.UnavailableError)(nil); errors.As(err, &unavailable) {
		t.Skip("skipped:", unavailable)
	}
	if err != nil {
		t.Fatal(err)
	}
	a := &api{Server: server, t: t}
	if a.admin, err = server.Client(harness.Admin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.empty)
	return a
}

// patience bounds every wait for something that is to come. Nothing is asserted
// of how fast it comes.
const patience = 90 * time.Second

// await asks until the condition holds.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		<-tick.C
	}
}
