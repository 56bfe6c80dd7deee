// Package apitest gives tests an embedded API of their own.
package apitest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evictd/evictd/internal/embeddedapi"
	"github.com/evictd/evictd/internal/require"
)

// New serves an empty API on loopback until the test ends.
func New(t testing.TB) kubernetes.Interface {
	t.Helper()
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: URL(t), QPS: -1})
}

// URL is where such an API is, behind what stands around it.
func URL(t testing.TB, around ...func(api http.Handler) http.Handler) string {
	t.Helper()
	api, err := embeddedapi.New(embeddedapi.Config{Data: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, api.Close()) })
	var handler http.Handler = api
	for _, put := range around {
		handler = put(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	require.Running(t, api.Run)
	return server.URL
}
