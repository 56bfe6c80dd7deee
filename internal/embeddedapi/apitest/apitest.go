// Package apitest gives tests an embedded API of their own: the program, behind a proxy.
package apitest

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/process"
	"github.com/evictd/evictd/internal/require"
	"github.com/evictd/evictd/internal/sandbox"
)

// New serves an empty API on loopback until the test ends.
func New(t testing.TB) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: URL(t), QPS: -1})
}

// URL is where such an API is, behind what stands around it.
func URL(t testing.TB, around ...func(api http.Handler) http.Handler) string {
	t.Helper()
	path, err := program()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "evictd-api-") // short enough for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "api.sock")
	api, err := process.Serve(dir, socket, exec.Command(path, sandbox.APIServer(socket, filepath.Join(dir, "data"))...))
	require.NoError(t, err)
	t.Cleanup(func() { _ = api.Stop(context.Background()) })
	require.NoError(t, api.Ready(t.Context()))

	connections := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(connections.CloseIdleConnections)
	var handler http.Handler = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "api" },
		Transport: connections, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
	}
	for _, put := range around {
		handler = put(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// program is the path of evictd-apiserver, which is built unless sandbox.ProgramsVariable is set. What was built is open,
// and its directory is gone: no test leaves it behind.
var program = sync.OnceValues(func() (path string, err error) {
	const name = "evictd-apiserver"
	if dir := os.Getenv(sandbox.ProgramsVariable); dir != "" {
		return filepath.Join(dir, name), nil
	}
	dir, err := os.MkdirTemp("", "evictd-apitest-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := sandbox.Build(dir, name); err != nil {
		return "", err
	}
	if opened, err = os.Open(filepath.Join(dir, name)); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", opened.Fd()), nil
})

var opened *os.File
